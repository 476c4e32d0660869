-- inboxd: the steps of a run
select step.ordinal, step.inbox_id, inbox.schema_name, inbox.table_name, step.day, step.relation_name, step.action, step.reason,
  step.outcome, step.error_kind, step.attempts, step.started_at, step.duration_ms
from inboxd.steps as step
join inboxd.inboxes as inbox on inbox.id = step.inbox_id
where step.run_id = $1
order by step.ordinal
