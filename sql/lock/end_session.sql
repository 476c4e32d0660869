-- inboxd: end a session of ours that nobody hears any more, and its locks with it
select pg_catalog.pg_terminate_backend(activity.pid)
from pg_catalog.pg_stat_activity as activity
where activity.pid = $1 and activity.backend_start = $2
