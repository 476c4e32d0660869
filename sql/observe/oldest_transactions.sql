-- inboxd: observe the oldest transaction that holds each inbox
--
-- By the locks that it has on the inbox's table or on a partition. Another role's session tells its start only to members
-- of pg_read_all_stats; without that right the age stays unknown.
select inbox.schema_name, inbox.table_name,
  pg_catalog.max(extract(epoch from pg_catalog.clock_timestamp() - coalesce(session.xact_start, prepared.prepared)))::bigint as seconds
from inboxd.inboxes as inbox
join pg_catalog.pg_namespace as space on space.nspname = inbox.schema_name
join pg_catalog.pg_class as parent on parent.relnamespace = space.oid and parent.relname = inbox.table_name
cross join lateral (
  select parent.oid as relation
  union all
  select child.inhrelid
  from pg_catalog.pg_inherits as child
  where child.inhparent = parent.oid
) as part
join pg_catalog.pg_locks as held
  on held.relation = part.relation
  and held.locktype = 'relation'
  and held.granted
  and held.database = (select own.oid from pg_catalog.pg_database as own where own.datname = pg_catalog.current_database())
left join pg_catalog.pg_stat_activity as session on session.pid = held.pid
left join pg_catalog.pg_prepared_xacts as prepared
  on held.pid is null and held.virtualtransaction = '-1/' || prepared.transaction::text
where held.pid is distinct from pg_catalog.pg_backend_pid()
group by inbox.schema_name, inbox.table_name
