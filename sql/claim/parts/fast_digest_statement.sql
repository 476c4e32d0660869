-- Today's slot of the digest and the insert in one statement: the advisory lock is older than its snapshot. The slot
    -- covers all days up to today, and no more, which is also what says that tomorrow is still too far to be looked at. Its
    -- mask is the one that this session has seen last: under a wrong one no row is found, or one that does not believe it.
    insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
    select $1, $2, clock{{consumer_of_call}}
    where exists (
      select
      from {{slot}} as looked
      where looked.hash_from = {{key}} & nullif(current_setting({{mask_setting}}, true), '')::bigint
        and looked.covered_to <= clock
        and looked.covered_to > clock + interval {{clock_step_tolerance}} - interval '24 hours'
        and {{rules_out}}
    )
    on conflict do nothing
    returning tableoid, {{is_keyed}} into holder, is_keyed;
