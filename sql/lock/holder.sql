-- inboxd: who holds the run lock
select
  held.pid,
  session.application_name::text as application_name,
  coalesce(session.client_addr::text, 'local') as client_address,
  session.backend_start as connected_at
from pg_catalog.pg_locks as held
left join pg_catalog.pg_stat_activity as session on session.pid = held.pid
where held.locktype = 'advisory'
  and held.granted
  and held.objsubid = 1
  and held.database = (select own.oid from pg_catalog.pg_database as own where own.datname = pg_catalog.current_database())
  and held.classid::bigint = ($1::bigint >> 32) & 4294967295
  and held.objid::bigint = $1::bigint & 4294967295
