-- inboxd: a person confirms the clock
with confirmed as (
  insert into inboxd.confirmations (what, used_at)
  values ('clock', pg_catalog.clock_timestamp())
  returning confirmed_at
)
insert into inboxd.clock (trusted_at)
select confirmed.confirmed_at from confirmed
on conflict (only_row) do update set trusted_at = excluded.trusted_at
