-- inboxd: the last run
select run.id, run.trigger, run.started_at, run.finished_at, run.outcome, run.error,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome = 'done') as steps_done,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome = 'failed') as steps_failed,
  (select pg_catalog.count(*) from inboxd.steps as step where step.run_id = run.id and step.outcome <> 'done') as steps_not_done,
  (
    select good.finished_at
    from inboxd.runs as good
    where good.deployment = $1 and good.outcome = 'done'
    order by good.ordinal desc
    limit 1
  ) as last_success_at
from inboxd.runs as run
where run.deployment = $1
order by run.ordinal desc
limit 1
