-- inboxd: record a dropped partition
update inboxd.partitions
set dropped_at = pg_catalog.clock_timestamp(), relation_oid = null
where inbox_id = $1 and day = $2
