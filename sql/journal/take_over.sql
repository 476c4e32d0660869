-- inboxd: take over an inbox
with before as (
  select inbox.id, inbox.deployment, inbox.system_identifier, inbox.database_oid
  from inboxd.inboxes as inbox
  where inbox.schema_name = $1 and inbox.table_name = $2
  for update
),
taken as (
  update inboxd.inboxes as inbox
  set deployment = $3, system_identifier = $4, database_oid = $5
  from before
  where inbox.id = before.id
    and (before.deployment, before.system_identifier, before.database_oid) is distinct from ($3, $4, $5)
  returning inbox.id
),
audited as (
  insert into inboxd.audit (actor, action, inbox_id, detail)
  select session_user, 'takeover', before.id, pg_catalog.jsonb_build_object(
    'deployment', before.deployment, 'system_identifier', before.system_identifier, 'database_oid', before.database_oid
  )
  from before
  join taken on taken.id = before.id
)
select before.deployment, taken.id is not null as is_taken
from before
left join taken on taken.id = before.id
