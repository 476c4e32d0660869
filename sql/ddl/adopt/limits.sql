-- inboxd: adopt, limits of a step
select
  pg_catalog.set_config('lock_timeout', {{lock}}, {{local}}),
  pg_catalog.set_config('statement_timeout', {{statement}}, {{local}})
