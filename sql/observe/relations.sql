-- inboxd: observe relations
--
-- Every relation that concerns an inbox that is asked for: its children, what carries its marker, and what has the name of a
-- partition of it. A constant number of scans, however many inboxes there are: each arm is one hash join.
--
-- pg_get_expr gets 0 for the relation: bounds hold no columns, and with the relation itself PostgreSQL 17 would lock it.
with inbox as (
  select registered.id, registered.table_name, registered.consumers, parent.oid as parent_oid, parent.relnamespace as space
  from inboxd.inboxes as registered
  join pg_catalog.pg_namespace as space on space.nspname = registered.schema_name
  join pg_catalog.pg_class as parent on parent.relnamespace = space.oid and parent.relname = registered.table_name
  where (registered.schema_name, registered.table_name) in (
    select asked.schema_name, asked.table_name
    from unnest($1::text[], $2::text[]) as asked (schema_name, table_name)
  )
),
concerned as (
  select inbox.id as inbox_id, child.inhrelid as oid, true as is_child, child.inhdetachpending as is_pending
  from inbox
  join pg_catalog.pg_inherits as child on child.inhparent = inbox.parent_oid
  union all
  select inbox.id, marker.objoid, false, false
  from pg_catalog.pg_description as marker
  join inbox on inbox.id::text = pg_catalog.substr(marker.description, 14, 36)
  where marker.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass
    and marker.objsubid = 0
    and marker.description like 'inboxd inbox=%'
  union all
  select inbox.id, named.oid, false, false
  from pg_catalog.pg_class as named
  join inbox
    on inbox.space = named.relnamespace
    and inbox.table_name = pg_catalog.left(named.relname::text, -11)
  where named.relname ~ '_[0-9]{4}_[0-9]{2}_[0-9]{2}$'
),
-- What we know of each table's detach, by day: OIDs do not survive dump and restore, so one on record may be another's by now.
record as (
  select made.inbox_id, made.relation_oid, pg_catalog.jsonb_object_agg(made.day, made.detached_at) as detached
  from inboxd.partitions as made
  where made.relation_oid is not null and made.detached_at is not null
  group by made.inbox_id, made.relation_oid
),
one as (
  select
    concerned.inbox_id,
    concerned.oid,
    pg_catalog.bool_or(concerned.is_child) as is_child,
    pg_catalog.bool_or(concerned.is_pending) as is_pending
  from concerned
  group by concerned.inbox_id, concerned.oid
)
select
  one.inbox_id,
  one.oid,
  one.is_child,
  one.is_pending,
  space.nspname::text as schema_name,
  relation.relname::text as relation_name,
  relation.relkind::text as kind,
  case when one.is_child then pg_catalog.pg_get_expr(relation.relpartbound, 0) end as bounds,
  -- A partition of something else is nobody's loose table, whatever its comment says.
  case
    when one.is_child or not relation.relispartition then pg_catalog.obj_description(relation.oid, 'pg_class')
  end as comment,
  coalesce(record.detached, '{}') as detached,
  exists (
    select
    from pg_catalog.pg_index as key
    where key.indrelid = relation.oid
      and key.indisunique and key.indisvalid and key.indisready and key.indimmediate
      and key.indpred is null and key.indexprs is null
      and (
        select pg_catalog.array_agg(attribute.attname::text order by attribute.attname)
        from pg_catalog.pg_attribute as attribute
        where attribute.attrelid = relation.oid
          and attribute.attnum = any ((key.indkey::int2[])[0:key.indnkeyatts - 1])
      ) = case inbox.consumers when 'many' then array['consumer', 'message_id'] else array['message_id'] end
  ) as has_key,
  exists (
    select
    from pg_catalog.pg_trigger as seal
    where seal.tgrelid = relation.oid and seal.tgname = 'inboxd_sealed' and seal.tgenabled in ('O', 'A')
  ) as is_sealed,
  exists (
    select
    from pg_catalog.pg_subscription_rel as subscribed
    where subscribed.srrelid in (relation.oid, inbox.parent_oid)
  ) as is_subscribed,
  pg_catalog.pg_get_userbyid(relation.relowner)::text as owner,
  coalesce((
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
      'grantee', case acl.grantee when 0 then '' else pg_catalog.pg_get_userbyid(acl.grantee) end,
      'privilege', acl.privilege_type,
      'grantable', acl.is_grantable
    ))
    from pg_catalog.aclexplode(relation.relacl) as acl
    where acl.grantee <> relation.relowner
  ), '[]') as grants,
  coalesce(relation.reloptions, '{}') as storage,
  relation.relreplident::text as replica_identity,
  (
    select place.spcname::text
    from pg_catalog.pg_tablespace as place
    where place.oid = relation.reltablespace
  ) as tablespace,
  case when relation.relkind = 'r' then pg_catalog.age(relation.relfrozenxid) end as xid_age,
  pg_catalog.pg_stat_get_live_tuples(relation.oid) as estimated_rows,
  pg_catalog.pg_stat_get_dead_tuples(relation.oid) as dead_rows,
  greatest(
    pg_catalog.pg_stat_get_last_vacuum_time(relation.oid),
    pg_catalog.pg_stat_get_last_autovacuum_time(relation.oid)
  ) as vacuumed_at
from one
join inbox on inbox.id = one.inbox_id
join pg_catalog.pg_class as relation on relation.oid = one.oid
join pg_catalog.pg_namespace as space on space.oid = relation.relnamespace
left join record on record.inbox_id = one.inbox_id and record.relation_oid = one.oid
order by one.inbox_id, relation.relname
