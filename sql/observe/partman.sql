-- inboxd: observe whether pg_partman is there, and the primary key of a table
--
-- Its configuration is only read where our role may.
select
  (
    select space.nspname::text
    from pg_catalog.pg_extension as partman
    join pg_catalog.pg_namespace as space on space.oid = partman.extnamespace
    join pg_catalog.pg_class as config on config.relnamespace = space.oid and config.relname = 'part_config'
    where partman.extname = 'pg_partman'
      and pg_catalog.has_schema_privilege(space.oid, 'usage')
      and pg_catalog.has_table_privilege(config.oid, 'select')
  ) as partman,
  (
    select key.conname::text
    from pg_catalog.pg_constraint as key
    join pg_catalog.pg_class as relation on relation.oid = key.conrelid
    join pg_catalog.pg_namespace as space on space.oid = relation.relnamespace
    where space.nspname = $1 and relation.relname = $2 and key.contype = 'p'
  ) as primary_key
