-- inboxd: what a session of ours has in hand: since when, and whether it repairs a key, which may take long
select
  activity.state = 'active' as is_active,
  activity.query_start,
  activity.query like '-- inboxd: repair key%' as repairs_key
from pg_catalog.pg_stat_activity as activity
where activity.pid = $1 and activity.backend_start = $2
