-- inboxd: observe sizes
--
-- From the files, never by counting rows. A table that somebody has locked against everything is left out: its size
-- could only be had by waiting.
select relation.oid, pg_catalog.pg_total_relation_size(relation.oid) as bytes
from pg_catalog.pg_class as relation
where relation.oid = any ($1)
  and not exists (
    select
    from pg_catalog.pg_locks as held
    where held.locktype = 'relation'
      and held.database = (select own.oid from pg_catalog.pg_database as own where own.datname = pg_catalog.current_database())
      and held.relation = relation.oid
      and held.mode = 'AccessExclusiveLock'
  )
