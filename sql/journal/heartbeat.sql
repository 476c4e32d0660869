-- inboxd: a replica is alive
insert into inboxd.replicas (id, deployment, host, process_id, version, started_at, heartbeat_at, alive_until, policies)
values (
  $1, $2, $3, $4, $5, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(),
  pg_catalog.clock_timestamp() + $6 * interval '1 second', $7
)
on conflict (id) do update
set heartbeat_at = excluded.heartbeat_at, alive_until = excluded.alive_until, policies = excluded.policies
