-- inboxd: observe the partitions of a table that is partitioned already
--
-- pg_get_expr gets 0 for the relation: bounds hold no columns, and with the relation itself PostgreSQL 17 would lock it.
select
  child.relname::text as name,
  child.relnamespace = parent.relnamespace as is_beside,
  child.relkind = 'r' as is_table,
  pg_catalog.pg_get_expr(child.relpartbound, 0) as bounds,
  exists (
    select
    from pg_catalog.pg_index as key
    where key.indrelid = child.oid
      and key.indisunique and key.indisvalid and key.indimmediate
      and key.indpred is null and key.indexprs is null
      and (
        select pg_catalog.array_agg(attribute.attname::text order by attribute.attname)
        from pg_catalog.pg_attribute as attribute
        where attribute.attrelid = child.oid
          and attribute.attnum = any ((key.indkey::int2[])[0:key.indnkeyatts - 1])
      ) = case when $3 then array['consumer', 'message_id'] else array['message_id'] end
  ) as has_key
from pg_catalog.pg_inherits as part
join pg_catalog.pg_class as child on child.oid = part.inhrelid
join pg_catalog.pg_class as parent on parent.oid = part.inhparent
join pg_catalog.pg_namespace as space on space.oid = parent.relnamespace
where space.nspname = $1 and parent.relname = $2
order by child.relname
