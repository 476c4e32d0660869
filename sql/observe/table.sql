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
  -- Whether a unique index stands on exactly the key, and whether there is any primary key.
  exists (
    select
    from pg_catalog.pg_index as key
    where key.indrelid = parent.oid
      and key.indisunique and key.indisvalid and key.indimmediate
      and key.indpred is null and key.indexprs is null
      and (
        select pg_catalog.array_agg(attribute.attname::text order by attribute.attname)
        from pg_catalog.pg_attribute as attribute
        where attribute.attrelid = parent.oid
          and attribute.attnum = any ((key.indkey::int2[])[0:key.indnkeyatts - 1])
      ) = case when $3 then array['consumer', 'message_id'] else array['message_id'] end
  ) as has_key,
  exists (
    select
    from pg_catalog.pg_index as key
    where key.indrelid = parent.oid and key.indisprimary
  ) as has_primary_key,
  pg_catalog.pg_get_userbyid(parent.relowner)::text as owner,
  parent.relreplident::text as replica_identity
from pg_catalog.pg_class as parent
join pg_catalog.pg_namespace as space on space.oid = parent.relnamespace
left join pg_catalog.pg_partitioned_table as part on part.partrelid = parent.oid
where space.nspname = $1 and parent.relname = $2
