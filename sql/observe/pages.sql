-- inboxd: observe how many pages a table has, and the oldest transaction that is not visible yet
select
  pg_catalog.pg_relation_size($1::oid) / pg_catalog.current_setting('block_size')::bigint as pages,
  (pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint & 4294967295) as oldest
