-- inboxd: control schema
--
-- Everything that inboxd remembers beside the inboxes themselves. The catalog is the truth about partitions; these tables
-- hold what the catalog cannot: who manages an inbox, what was done and why, and what a person decided.

create table inboxd.inboxes (
  id uuid constraint inboxes_pkey primary key,
  schema_name text not null,
  table_name text not null,
  -- The random part of the claim's lock key. Never an OID: it must survive dump and restore.
  lock_key bigint not null,
  routing text not null constraint inboxes_routing_known check (routing in ('processed_at', 'message_id')),
  consumers text not null constraint inboxes_consumers_known check (consumers in ('one', 'many')),
  deployment text not null,
  -- The server that the inbox was made on, and the database in it: a copy of either is another.
  system_identifier bigint not null,
  database_oid oid not null,
  created_at timestamptz not null,
  constraint inboxes_table_key unique (schema_name, table_name)
);

-- One row a day that ever had a partition, whatever became of it. A year of it is 365 rows.
create table inboxd.partitions (
  inbox_id uuid not null constraint partitions_inbox_fkey references inboxd.inboxes (id),
  day date not null,
  relation_oid oid,
  created_at timestamptz,
  detach_started_at timestamptz,
  detached_at timestamptz,
  dropped_at timestamptz,
  constraint partitions_pkey primary key (inbox_id, day)
);

create table inboxd.replicas (
  id uuid constraint replicas_pkey primary key,
  deployment text not null,
  host text not null,
  process_id int not null,
  version text not null,
  started_at timestamptz not null,
  heartbeat_at timestamptz not null,
  -- Until when it counts as alive without another heartbeat: its next run and some.
  alive_until timestamptz not null,
  -- Table to retention_seconds (null: for ever) and ahead_days, as this replica is configured.
  policies jsonb not null
);

-- One row: the highest database time that a run has trusted.
create table inboxd.clock (
  only_row boolean not null default true constraint clock_pkey primary key constraint clock_one_row check (only_row),
  trusted_at timestamptz not null
);

create table inboxd.runs (
  id uuid constraint runs_pkey primary key,
  -- The order of runs. Their times are the server's clock, which may step.
  ordinal bigint generated always as identity,
  deployment text not null,
  trigger text not null,
  version text not null,
  started_at timestamptz not null,
  finished_at timestamptz,
  outcome text constraint runs_outcome_known check (outcome in ('done', 'partial', 'failed')),
  error text
);
create index runs_by_ordinal on inboxd.runs (ordinal);

create table inboxd.steps (
  run_id uuid not null constraint steps_run_fkey references inboxd.runs (id),
  ordinal int not null,
  inbox_id uuid not null constraint steps_inbox_fkey references inboxd.inboxes (id),
  day date,
  relation_name text not null,
  action text not null,
  reason text not null,
  outcome text not null constraint steps_outcome_known check (outcome in ('done', 'failed', 'skipped')),
  error_kind text,
  error text,
  attempts int not null,
  started_at timestamptz not null,
  duration_ms bigint not null,
  constraint steps_pkey primary key (run_id, ordinal)
);

create table inboxd.holds (
  inbox_id uuid not null constraint holds_inbox_fkey references inboxd.inboxes (id),
  day date not null,
  held_at timestamptz not null default clock_timestamp(),
  held_by text not null default session_user,
  reason text not null,
  constraint holds_pkey primary key (inbox_id, day)
);

create table inboxd.pauses (
  deployment text constraint pauses_pkey primary key,
  paused_at timestamptz not null default clock_timestamp(),
  paused_by text not null default session_user,
  reason text not null
);

create table inboxd.confirmations (
  id bigint generated always as identity constraint confirmations_pkey primary key,
  what text not null constraint confirmations_what_known check (what in ('clock', 'drops')),
  inbox_id uuid constraint confirmations_inbox_fkey references inboxd.inboxes (id),
  confirmed_at timestamptz not null default clock_timestamp(),
  confirmed_by text not null default session_user,
  -- For drops: the days whose partitions one run may detach, and drop, beyond its cap.
  detach_days date[] not null default '{}',
  drop_days date[] not null default '{}',
  used_at timestamptz
);

create table inboxd.audit (
  id bigint generated always as identity constraint audit_pkey primary key,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  action text not null,
  inbox_id uuid,
  reason text,
  detail jsonb not null default '{}'
);
