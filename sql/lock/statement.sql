-- inboxd: what a session of ours has in hand: since when, and whether it builds what may take long
select
  activity.state = 'active' as is_active,
  activity.query_start,
  activity.query like any (array['-- inboxd: repair key%', '-- inboxd: build digest%']) as builds
from pg_catalog.pg_stat_activity as activity
where activity.pid = $1 and activity.backend_start = $2
