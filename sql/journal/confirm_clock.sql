-- inboxd: a person confirms the clock
with before as (
  select clock.trusted_at from inboxd.clock as clock
),
confirmed as (
  insert into inboxd.confirmations (what, confirmed_by, used_at)
  values ('clock', coalesce($1, session_user), pg_catalog.clock_timestamp())
  returning confirmed_at, confirmed_by
),
audited as (
  insert into inboxd.audit (actor, action, detail)
  select confirmed.confirmed_by, 'confirm_clock', pg_catalog.jsonb_build_object(
    'trusted_before', (select before.trusted_at from before), 'trusted_at', confirmed.confirmed_at
  )
  from confirmed
)
insert into inboxd.clock (trusted_at)
select confirmed.confirmed_at from confirmed
on conflict (only_row) do update set trusted_at = excluded.trusted_at
returning trusted_at, (select before.trusted_at from before) as trusted_before
