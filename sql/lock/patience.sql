-- inboxd: wait no longer than this for a lock, in this transaction
--
-- The session's own limit holds where it is shorter.
select pg_catalog.set_config('lock_timeout', least(
  $1::bigint,
  nullif(extract(epoch from pg_catalog.current_setting('lock_timeout')::interval) * 1000, 0)
)::bigint::text, true)
