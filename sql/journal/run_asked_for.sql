-- inboxd: put on the audit who asked for a run
insert into inboxd.audit (actor, action, inbox_id, detail)
values (
  $1,
  'run',
  (
    select inbox.id
    from inboxd.inboxes as inbox
    where inbox.deployment = $2 and inbox.schema_name = $3 and inbox.table_name = $4
  ),
  pg_catalog.jsonb_build_object('deployment', $2::text, 'run', $5::uuid)
)
