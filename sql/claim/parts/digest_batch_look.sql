-- One slot, one row of it for each message.
select
              array_agg(greatest(given.since, looked.covered_to) order by given.place),
              min(greatest(given.since, looked.covered_to))
            into sinces, since
            from unnest(keys, sinces) with ordinality as given (key, since, place)
            left join lateral (
              select slot.lock_key, slot.covered_from, slot.covered_to, slot.fingerprints
              from {{slot}} as slot
              where slot.hash_from <= given.key
              order by slot.hash_from desc
              limit 1
            ) as looked
              on looked.lock_key = {{seed}} and looked.covered_from <= given.since
              and position(int4send((given.key << 32 >> 32)::int) in looked.fingerprints) = 0;
