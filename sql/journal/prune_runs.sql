-- inboxd: prune old runs
delete from inboxd.runs as run
where run.started_at < pg_catalog.clock_timestamp() - interval '90 days'
  and run.ordinal < (select pg_catalog.max(newest.ordinal) - 1000 from inboxd.runs as newest)
