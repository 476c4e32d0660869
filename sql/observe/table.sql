-- inboxd: observe a table that is not on record
select
  parent.relkind::text as kind,
  part.partstrat::text as strategy,
  part.partnatts::int as key_columns,
  (
    select attribute.attname::text
    from pg_catalog.pg_attribute as attribute
    where attribute.attrelid = parent.oid and attribute.attnum = part.partattrs[0]
  ) as key_column,
  coalesce((
    select pg_catalog.jsonb_object_agg(attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod))
    from pg_catalog.pg_attribute as attribute
    where attribute.attrelid = parent.oid and attribute.attnum > 0 and not attribute.attisdropped
  ), '{}') as columns,
  pg_catalog.pg_get_userbyid(parent.relowner)::text as owner,
  parent.relreplident::text as replica_identity
from pg_catalog.pg_class as parent
join pg_catalog.pg_namespace as space on space.oid = parent.relnamespace
left join pg_catalog.pg_partitioned_table as part on part.partrelid = parent.oid
where space.nspname = $1 and parent.relname = $2
