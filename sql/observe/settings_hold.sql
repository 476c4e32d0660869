-- inboxd: observe whether our session settings hold
select pg_catalog.current_setting('search_path') = 'pg_catalog,pg_temp'
  and pg_catalog.current_setting('TimeZone') = 'UTC'
  and pg_catalog.current_setting('idle_in_transaction_session_timeout') = '1min'
