-- inboxd: record that a detach begins
insert into inboxd.partitions (inbox_id, day, relation_oid, detach_started_at)
values ($1, $2, $3, pg_catalog.clock_timestamp())
on conflict (inbox_id, day) do update
set relation_oid = excluded.relation_oid, detach_started_at = excluded.detach_started_at, detached_at = null
