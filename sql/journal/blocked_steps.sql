-- inboxd: the steps of a run that could not be done in time
select inbox.schema_name, inbox.table_name, step.relation_name, step.error
from inboxd.steps as step
join inboxd.inboxes as inbox on inbox.id = step.inbox_id
where step.run_id = $1 and step.outcome = 'failed' and step.error_kind in ('lock_timeout', 'statement_timeout')
order by step.ordinal
limit 100
