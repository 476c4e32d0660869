-- inboxd: record a partition that is attached again
insert into inboxd.partitions (inbox_id, day, relation_oid)
values ($1, $2, $3)
on conflict (inbox_id, day) do update
set relation_oid = excluded.relation_oid, detach_started_at = null, detached_at = null, dropped_at = null
