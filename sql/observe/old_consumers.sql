-- inboxd: observe sessions that insert into a table directly
--
-- By the last statement of each; one that hides it could be such a consumer too.
select
  session.pid,
  session.application_name::text as application_name,
  session.usename::text as role,
  session.query is null or session.query = '<insufficient privilege>' as is_hidden
from pg_catalog.pg_stat_activity as session
where session.datname = pg_catalog.current_database()
  and session.pid <> pg_catalog.pg_backend_pid()
  and session.backend_type = 'client backend'
  and (
    session.query is null
    or session.query = '<insufficient privilege>'
    or (
      session.query ~* '\minsert\s+into\M'
      and pg_catalog.strpos(pg_catalog.lower(session.query), pg_catalog.lower($1)) > 0
    )
  )
order by session.pid
limit 5
