-- inboxd: what is on the audit of a deployment
select audit.id, audit.at, audit.actor, audit.action, inbox.schema_name, inbox.table_name, audit.reason, audit.detail
from inboxd.audit as audit
left join inboxd.inboxes as inbox on inbox.id = audit.inbox_id
-- What is about no inbox names its deployment, or is about the whole database.
where coalesce(inbox.deployment, audit.detail ->> 'deployment', $1) = $1
  and ($2::bigint is null or audit.id < $2)
  and ($3::text is null or (inbox.schema_name = $3 and inbox.table_name = $4))
order by audit.id desc
limit $5
