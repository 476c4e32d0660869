-- inboxd: register an inbox
insert into inboxd.inboxes (
  id, schema_name, table_name, lock_key, routing, consumers, deployment, system_identifier, database_oid, created_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, pg_catalog.clock_timestamp())
