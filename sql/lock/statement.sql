-- inboxd: the statement that a session of ours has in hand, by its beginning
select activity.query_start
from pg_catalog.pg_stat_activity as activity
where activity.pid = $1
  and activity.state = 'active'
