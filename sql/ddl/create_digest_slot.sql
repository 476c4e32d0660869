-- inboxd: create a slot of the digest
create table {{slot}} (
  hash_from bigint primary key,
  mask bigint not null,
  lock_key bigint not null,
  covered_from timestamptz not null,
  covered_to timestamptz not null,
  fingerprints bytea not null
) with (autovacuum_enabled = false)
