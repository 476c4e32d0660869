-- inboxd: prune old steps
--
-- Ninety days, and always the last thousand runs: a clock that has leapt must not take the history with it.
delete from inboxd.steps as step
using inboxd.runs as run
where step.run_id = run.id
  and run.started_at < pg_catalog.clock_timestamp() - interval '90 days'
  and run.ordinal < (select pg_catalog.max(newest.ordinal) - 1000 from inboxd.runs as newest)
