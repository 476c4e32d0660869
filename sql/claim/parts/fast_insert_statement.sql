-- Look-back and insert in one statement: the advisory lock is older than its snapshot.
insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
          select $1, $2, clock{{consumer_of_call}}
          where (timestamptz 'now' at time zone 'UTC')::date = (clock at time zone 'UTC')::date
            and not exists (
              select
              from {{inbox}} as seen
              where seen.message_id = $1{{and_consumer}} and seen.processed_at >= {{from}} and seen.processed_at < {{to}}
            )
          on conflict do nothing
          returning tableoid, {{is_keyed}} into holder, is_keyed;
