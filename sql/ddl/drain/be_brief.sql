-- inboxd: drain, limits of the exchange
select
  pg_catalog.set_config('lock_timeout', {{lock}}, true),
  pg_catalog.set_config('statement_timeout', {{statement}}, true)
