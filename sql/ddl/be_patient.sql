-- inboxd: repair key, longer limits
select
  pg_catalog.set_config('lock_timeout', {{limit}}, false),
  pg_catalog.set_config('statement_timeout', {{limit}}, false)
