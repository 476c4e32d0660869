-- inboxd: the process of this session
select pg_catalog.pg_backend_pid()
