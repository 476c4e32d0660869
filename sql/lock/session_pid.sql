-- inboxd: the process of this session, and when it began: another may have its number later
select activity.pid, activity.backend_start
from pg_catalog.pg_stat_activity as activity
where activity.pid = pg_catalog.pg_backend_pid()
