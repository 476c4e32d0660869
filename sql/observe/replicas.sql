-- inboxd: observe replicas
select replica.id, replica.host, replica.process_id, replica.version, replica.started_at, replica.heartbeat_at, replica.policies
from inboxd.replicas as replica
where replica.deployment = $1
  and replica.alive_until > pg_catalog.clock_timestamp()
  -- One that was heard of last while the clock was ahead would count as alive until it is there again. One that lives
  -- says so with its next run; until then a small step back takes no replica's configuration away.
  and replica.heartbeat_at < pg_catalog.clock_timestamp() + interval '1 day'
order by replica.started_at, replica.id
