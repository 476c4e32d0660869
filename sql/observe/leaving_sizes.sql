-- inboxd: observe the sizes of partitions that are leaving
--
-- Those that somebody has locked against everything are left out: their size could only be had by waiting.
select relation.oid, pg_catalog.pg_total_relation_size(relation.oid) as bytes
from inboxd.partitions as made
join pg_catalog.pg_class as relation on relation.oid = made.relation_oid
where (made.detach_started_at is not null or made.detached_at is not null)
  and made.dropped_at is null
  and not exists (
    select
    from pg_catalog.pg_locks as held
    where held.locktype = 'relation'
      and held.database = (select own.oid from pg_catalog.pg_database as own where own.datname = pg_catalog.current_database())
      and held.relation = relation.oid
      and held.mode = 'AccessExclusiveLock'
  )
