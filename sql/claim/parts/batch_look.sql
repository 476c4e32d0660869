-- Looks for many messages in any days: planned for these, so that no other partition is locked.
select array_agg(given.place), array_agg(held.processed_at), array_agg(held.writer)
from (
  select looked.id, looked.since, looked.place::int
  from unnest($1, $2) with ordinality as looked (id, since, place)
  where $3 is null or looked.place = any ($3)
) as given
cross join lateral (
  select seen.processed_at, seen.xmin::text as writer
  from {{inbox}} as seen
  where seen.message_id = given.id{{and_consumer_6}} and (given.since is null or seen.processed_at >= given.since)
    and seen.processed_at >= $4 and seen.processed_at < $5
  limit 1
) as held
