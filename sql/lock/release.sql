-- inboxd: release the run lock
select pg_catalog.pg_advisory_unlock($1)
