-- inboxd: record a step
insert into inboxd.steps (
  run_id, ordinal, inbox_id, day, relation_name, action, reason, outcome, error_kind, error, attempts, started_at, duration_ms
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, pg_catalog.clock_timestamp() - $12 * interval '1 millisecond', $12)
