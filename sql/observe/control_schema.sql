-- inboxd: observe control schema
select pg_catalog.to_regclass('inboxd.migrations') is not null
