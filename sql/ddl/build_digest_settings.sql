-- inboxd: build digest, its settings
--
-- The sort takes what memory it is given and the rest on disk; the groups would take as much as they like.
select
  pg_catalog.set_config('statement_timeout', {{limit}}, true),
  pg_catalog.set_config('work_mem', '64MB', true),
  pg_catalog.set_config('enable_hashagg', 'off', true),
  pg_catalog.set_config('max_parallel_workers_per_gather', '0', true)
