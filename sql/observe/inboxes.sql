-- inboxd: observe inboxes
--
-- One row a registered inbox that is asked for, with its table, its claim functions and what our records say of its days.
select
  inbox.id as inbox_id,
  inbox.schema_name,
  inbox.table_name,
  inbox.lock_key,
  inbox.routing,
  inbox.consumers,
  inbox.deployment,
  inbox.system_identifier,
  inbox.database_oid,
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
      ) = case inbox.consumers when 'many' then array['consumer', 'message_id'] else array['message_id'] end
  ) as has_key,
  exists (
    select
    from pg_catalog.pg_index as key
    where key.indrelid = parent.oid and key.indisprimary
  ) as has_primary_key,
  pg_catalog.pg_get_userbyid(parent.relowner)::text as owner,
  coalesce((
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
      'grantee', case acl.grantee when 0 then '' else pg_catalog.pg_get_userbyid(acl.grantee) end,
      'privilege', acl.privilege_type,
      'grantable', acl.is_grantable
    ))
    from pg_catalog.aclexplode(parent.relacl) as acl
    where acl.grantee <> parent.relowner
  ), '[]') as grants,
  parent.relreplident::text as replica_identity,
  (
    select place.spcname::text
    from pg_catalog.pg_tablespace as place
    where place.oid = parent.reltablespace
  ) as tablespace,
  array(
    select restriction.conname::text
    from pg_catalog.pg_constraint as restriction
    where restriction.conrelid = parent.oid and restriction.contype = 'c'
  ) as checks,
  -- What maintenance will be refused. has_schema_privilege of the owner: a table's new owner must be able to create there.
  case when parent.oid is null then '{}' else pg_catalog.array_remove(array[
    case
      when not pg_catalog.pg_has_role(parent.relowner, 'usage')
        then pg_catalog.format('grant %I to %I', pg_catalog.pg_get_userbyid(parent.relowner), current_user)
    end,
    case
      when pg_catalog.current_setting('server_version_num')::int >= 160000
        and pg_catalog.pg_has_role(parent.relowner, 'usage')
        and not pg_catalog.pg_has_role(parent.relowner, 'set')
        then pg_catalog.format('grant %I to %I with set true', pg_catalog.pg_get_userbyid(parent.relowner), current_user)
    end,
    case
      when not pg_catalog.has_schema_privilege(current_user, space.oid, 'create')
        then pg_catalog.format('grant create, usage on schema %I to %I', space.nspname, current_user)
    end,
    case
      when not pg_catalog.has_schema_privilege(parent.relowner, space.oid, 'create')
        then pg_catalog.format('grant create, usage on schema %I to %I', space.nspname, pg_catalog.pg_get_userbyid(parent.relowner))
    end
  ], null) end as lacking,
  -- Publications of it, or of a partition, by any way but the one that new days and forgets leave alone. The view also holds
  -- what is published with a schema, or with all tables; that catalog is not there on 14.
  coalesce((
    select pg_catalog.array_agg(distinct pg_catalog.quote_ident(published.pubname))
    from pg_catalog.pg_publication as published
    where (published.pubupdate or published.pubdelete or published.pubtruncate
        or not published.pubinsert or not published.pubviaroot)
      and exists (
        select
        from pg_catalog.pg_publication_tables as listed
        join pg_catalog.pg_namespace as home on home.nspname = listed.schemaname
        join pg_catalog.pg_class as relation
          on relation.relnamespace = home.oid and relation.relname = listed.tablename
        left join pg_catalog.pg_inherits as link on link.inhrelid = relation.oid
        where listed.pubname = published.pubname and parent.oid in (relation.oid, link.inhparent)
      )
  ), '{}') as unfit_publications,
  pg_catalog.obj_description(claim.oid, 'pg_proc') as claim_comment,
  -- All seven of an inbox's functions are there, and act with the rights of the table's owner.
  (
    select pg_catalog.count(*) = 7
    from pg_catalog.pg_proc as made
    join (
      values
        ('_claim_inner', '2950 25 1184 25'),
        ('_claim_wait', '2950 25 1184 25 1186'),
        ('_batch_wait', '2951 1009 1185 25 1186'),
        ('_claim', '2950 25 1184 25'),
        ('_try_claim', '2950 25 1184 25 1186'),
        ('_claim_batch', '2951 1009 1185 25 1186'),
        ('_forget', '2950 25 25')
    ) as wanted (suffix, types)
      on made.proname = inbox.table_name || wanted.suffix and made.proargtypes = wanted.types::pg_catalog.oidvector
    where made.pronamespace = space.oid and made.proowner = parent.relowner
  ) as has_functions,
  coalesce((
    select pg_catalog.jsonb_object_agg(hold.day, hold.held_at)
    from inboxd.holds as hold
    where hold.inbox_id = inbox.id
  ), '{}') as held,
  coalesce((
    select pg_catalog.array_agg(made.day)
    from inboxd.partitions as made
    where made.inbox_id = inbox.id
  ), '{}') as made,
  -- What a person let go beyond the cap. After a week without a run that used it, it was about another situation.
  (
    select pg_catalog.jsonb_build_object('detach', confirmed.detach_days, 'drop', confirmed.drop_days)
    from inboxd.confirmations as confirmed
    where confirmed.inbox_id = inbox.id and confirmed.what = 'drops' and confirmed.used_at is null
      and confirmed.confirmed_at > pg_catalog.clock_timestamp() - interval '7 days'
    order by confirmed.id desc
    limit 1
  ) as confirmed,
  (select clock.trusted_at from inboxd.clock as clock) as trusted_at
from inboxd.inboxes as inbox
left join pg_catalog.pg_namespace as space on space.nspname = inbox.schema_name
left join pg_catalog.pg_class as parent on parent.relnamespace = space.oid and parent.relname = inbox.table_name
left join pg_catalog.pg_partitioned_table as part on part.partrelid = parent.oid
left join pg_catalog.pg_proc as claim
  on claim.pronamespace = space.oid
  and claim.proname = inbox.table_name || '_claim'
  and claim.proargtypes = '2950 25 1184 25'::pg_catalog.oidvector
where (inbox.schema_name, inbox.table_name) in (
  select asked.schema_name, asked.table_name
  from unnest($1::text[], $2::text[]) as asked (schema_name, table_name)
)
order by inbox.schema_name, inbox.table_name
