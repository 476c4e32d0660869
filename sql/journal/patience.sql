-- inboxd: wait longer for a lock, in this transaction
--
-- Another init holds it for as long as it works: seconds, where our sessions usually wait for tenths.
select pg_catalog.set_config('lock_timeout', '25s', true)
