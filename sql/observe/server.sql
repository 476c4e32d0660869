-- inboxd: observe server
select
  pg_catalog.clock_timestamp() as now,
  pg_catalog.current_setting('server_version_num')::int as version_num,
  pg_catalog.pg_is_in_recovery() as in_recovery,
  pg_catalog.current_setting('default_transaction_read_only')::boolean as read_only,
  (select control.system_identifier from pg_catalog.pg_control_system() as control) as system_identifier,
  (
    select own.oid
    from pg_catalog.pg_database as own
    where own.datname = pg_catalog.current_database()
  ) as database_oid
