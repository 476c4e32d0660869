-- One slot, one row of it for each message.
select
              array_agg(greatest(given.since, looked.covered_to) order by given.place),
              min(greatest(given.since, looked.covered_to))
            into sinces, since
            from unnest(keys, sinces) with ordinality as given (key, since, place)
            left join lateral (
              {{row}}
            ) as looked
              on {{rules_out}};
