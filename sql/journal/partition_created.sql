-- inboxd: record a created partition
insert into inboxd.partitions (inbox_id, day, relation_oid, created_at)
select $1, $2, relation.oid, pg_catalog.clock_timestamp()
from pg_catalog.pg_class as relation
join pg_catalog.pg_namespace as space on space.oid = relation.relnamespace
where space.nspname = $3 and relation.relname = $4
on conflict (inbox_id, day) do update
set relation_oid = excluded.relation_oid,
  created_at = excluded.created_at,
  detach_started_at = null,
  detached_at = null,
  dropped_at = null
