-- inboxd: record that a run begins
insert into inboxd.runs (id, deployment, trigger, version, started_at)
values ($1, $2, $3, $4, pg_catalog.clock_timestamp())
returning started_at
