-- One slot, for all messages and all days.
select count(*) = wanted into is_ruled_out
          from unnest(keys) as given (key)
          join lateral (
            {{row}}
          ) as looked
            on looked.covered_to >= day_start
              and {{rules_out}};
