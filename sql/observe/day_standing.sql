-- inboxd: observe what is becoming of a day's table
--
-- That a detach has begun is on record before the catalog says so, and stays there when it was given up.
select
  relation.relispartition as is_partition,
  coalesce(child.inhdetachpending, false) as is_pending,
  coalesce(made.detach_started_at is not null and made.detached_at is null, false) as has_begun
from pg_catalog.pg_class as relation
left join pg_catalog.pg_inherits as child on child.inhrelid = relation.oid
left join inboxd.partitions as made on made.inbox_id = $2 and made.day = $3 and made.relation_oid = relation.oid
where relation.oid = $1
