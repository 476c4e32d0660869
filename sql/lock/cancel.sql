-- inboxd: cancel the statement that a session of ours has in hand
select pg_catalog.pg_cancel_backend(activity.pid)
from pg_catalog.pg_stat_activity as activity
where activity.pid = $1 and activity.backend_start = $2
