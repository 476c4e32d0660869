-- inboxd: the server's clock, a minute from now
select pg_catalog.clock_timestamp() + interval '1 minute'
