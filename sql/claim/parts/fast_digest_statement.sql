-- The digest and the insert in one statement: the advisory lock is older than its snapshot.
insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
          select $1, $2, clock{{consumer_of_call}}
          from (
              {{row}}
          ) as looked
          where looked.covered_to >= day_start
            and {{rules_out}}
          on conflict do nothing
          returning tableoid into holder;
