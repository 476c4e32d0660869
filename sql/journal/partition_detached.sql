-- inboxd: record a detached partition
insert into inboxd.partitions (inbox_id, day, relation_oid, detached_at)
values ($1, $2, $3, pg_catalog.clock_timestamp())
on conflict (inbox_id, day) do update
set relation_oid = excluded.relation_oid, detached_at = excluded.detached_at
returning detached_at
