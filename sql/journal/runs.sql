-- inboxd: the history of runs
select run.id, run.ordinal, run.trigger, run.version, run.started_at, run.finished_at, run.outcome, run.error is not null as has_error,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome = 'done') as steps_done,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome = 'failed') as steps_failed,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome = 'skipped') as steps_skipped
from inboxd.runs as run
where run.deployment = $1
  and ($2::uuid is null or run.id = $2)
  and ($3::bigint is null or run.ordinal < $3)
  -- 'running': without an end yet, or its process died.
  and ($4::text is null or coalesce(run.outcome, 'running') = $4)
order by run.ordinal desc
limit $5
