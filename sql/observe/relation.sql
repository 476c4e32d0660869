-- inboxd: observe one relation
select
  relation.relkind::text as kind,
  relation.relispartition as is_partition,
  pg_catalog.obj_description(relation.oid, 'pg_class') as comment,
  child.inhdetachpending as is_pending,
  relation.relreplident = 'd' as has_default_replica_identity,
  pg_catalog.pg_get_userbyid(relation.relowner)::text as owner,
  coalesce((
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
      'grantee', case acl.grantee when 0 then '' else pg_catalog.pg_get_userbyid(acl.grantee) end,
      'privilege', acl.privilege_type,
      'grantable', acl.is_grantable
    ))
    from pg_catalog.aclexplode(relation.relacl) as acl
    where acl.grantee <> relation.relowner
  ), '[]') as grants
from pg_catalog.pg_class as relation
join pg_catalog.pg_namespace as space on space.oid = relation.relnamespace
left join pg_catalog.pg_inherits as child on child.inhrelid = relation.oid
where ($1::oid is null or relation.oid = $1) and space.nspname = $2 and relation.relname = $3
