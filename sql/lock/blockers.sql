-- inboxd: who is in the way of a step, the oldest transaction first
select
  session.pid,
  session.application_name::text as application_name,
  session.state::text as state,
  extract(epoch from pg_catalog.clock_timestamp() - session.xact_start)::float8 as age_seconds
from pg_catalog.pg_stat_activity as session
where session.pid <> pg_catalog.pg_backend_pid()
  and session.datname = pg_catalog.current_database()
  and (
    -- A detach waits for every older snapshot of the database.
    ($4 and session.backend_xmin is not null and session.backend_type = 'client backend')
    or exists (
      select
      from pg_catalog.pg_locks as held
      join pg_catalog.pg_class as relation on relation.oid = held.relation
      join pg_catalog.pg_namespace as space on space.oid = relation.relnamespace
      where held.pid = session.pid
        and held.granted
        and space.nspname = $1
        -- Of the partition anything may be in the way, or all but readers; of the inbox what conflicts with SHARE UPDATE EXCLUSIVE.
        and (
          (relation.relname = $3 and not ($5 and held.mode in ('AccessShareLock', 'RowShareLock')))
          or (relation.relname = $2 and held.mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))
        )
    )
  )
order by session.xact_start nulls last, session.pid
limit 3
