-- inboxd: try the run lock
select pg_catalog.pg_try_advisory_lock($1) as locked
