-- inboxd: the last run
select run.id, run.trigger, run.started_at, run.finished_at, run.outcome, run.error,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome = 'done') as steps_done,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome = 'failed') as steps_failed,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome <> 'done') as steps_not_done
from inboxd.runs as run
where run.deployment = $1
order by run.ordinal desc
limit 1
