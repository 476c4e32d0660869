-- Always one row, so that the day of the plan is told also where nothing is found.
select (timestamptz 'now' at time zone 'UTC')::date, held.processed_at, held.writer into planned, first_at, writer
        from (values (1)) as always
        left join (
          select seen.processed_at, seen.xmin::text as writer
          from {{inbox}} as seen
          where seen.message_id = id{{and_consumer}} and seen.processed_at >= {{from}} and seen.processed_at < {{to}}
          limit 1
        ) as held on true;
