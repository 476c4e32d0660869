-- inboxd: probe by index, and wait for a lock no longer than this
--
-- A table of one page would be read whole. The session's own limit holds where it is shorter.
select
  pg_catalog.set_config('enable_seqscan', 'off', true),
  pg_catalog.set_config('lock_timeout', least(
    $1::bigint,
    nullif(extract(epoch from pg_catalog.current_setting('lock_timeout')::interval) * 1000, 0)
  )::bigint::text, true)
