-- One look for all messages; each is believed from its own bound on only.
select
          (timestamptz 'now' at time zone 'UTC')::date,
          array_agg(given.place::int), array_agg(held.processed_at), array_agg(held.writer)
        into planned, found_places, found_ats, found_writers
        from unnest(ids, sinces) with ordinality as given (id, since, place)
        -- A limit keeps it a look by key for each message: joined, it could become a scan of a whole day.
        cross join lateral (
          select seen.processed_at, seen.xmin::text as writer
          from {{inbox}} as seen
          where seen.message_id = given.id{{and_consumer}} and seen.processed_at >= given.since
            and seen.processed_at >= {{from}} and seen.processed_at < {{to}}
          limit 1
        ) as held
        where given.since < {{to}};
