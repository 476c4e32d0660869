-- inboxd: observe replicas
select replica.id, replica.host, replica.process_id, replica.version, replica.started_at, replica.heartbeat_at, replica.policies
from inboxd.replicas as replica
where replica.deployment = $1
  and replica.alive_until > pg_catalog.clock_timestamp()
order by replica.started_at, replica.id
