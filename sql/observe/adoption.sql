-- inboxd: observe a table that may be adopted
--
-- Everything that would be lost, or would go on pointing at the old rows only, when the table is renamed.
with target as (
  select found.*, space.nspname
  from pg_catalog.pg_class as found
  join pg_catalog.pg_namespace as space on space.oid = found.relnamespace
  where space.nspname = $1 and found.relname = $2
)
select
  pg_catalog.clock_timestamp() as now,
  target.oid,
  target.relkind::text as kind,
  pg_catalog.pg_get_userbyid(target.relowner)::text as owner,
  target.relpages::bigint * 8192 as bytes,
  target.reltuples::bigint as rows,
  target.relreplident::text as replica_identity,
  (
    select place.spcname::text
    from pg_catalog.pg_tablespace as place
    where place.oid = target.reltablespace
  ) as tablespace,
  pg_catalog.obj_description(target.oid, 'pg_class') as comment,
  coalesce((
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
      'grantee', case acl.grantee when 0 then '' else pg_catalog.pg_get_userbyid(acl.grantee) end,
      'privilege', acl.privilege_type,
      'grantable', acl.is_grantable
    ))
    from pg_catalog.aclexplode(target.relacl) as acl
    where acl.grantee <> target.relowner
  ), '[]') as grants,
  coalesce((
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
      'name', attribute.attname,
      'kind', pg_catalog.format_type(attribute.atttypid, attribute.atttypmod),
      'is_not_null', attribute.attnotnull,
      'has_default', attribute.atthasdef,
      'is_identity', attribute.attidentity <> ''
    ) order by attribute.attnum)
    from pg_catalog.pg_attribute as attribute
    where attribute.attrelid = target.oid and attribute.attnum > 0 and not attribute.attisdropped
  ), '[]') as columns,
  coalesce((
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
      'name', restriction.conname,
      'is_validated', restriction.convalidated,
      'says', pg_catalog.pg_get_constraintdef(restriction.oid)
    ) order by restriction.conname)
    from pg_catalog.pg_constraint as restriction
    where restriction.conrelid = target.oid and restriction.contype = 'c'
  ), '[]') as checks,
  indexes.has_key,
  indexes.other_unique,
  indexes.other_indexes,
  pg_catalog.jsonb_build_array(
    case
      when target.relpersistence <> 'p'
        then array['it is unlogged or temporary', 'alter table … set logged']
    end,
    case
      when target.relispartition
        or exists (select from pg_catalog.pg_inherits as family where target.oid in (family.inhrelid, family.inhparent))
        then array['it is a partition, or inherits or is inherited from', 'take it out of that family']
    end,
    case
      when target.relrowsecurity
        then array['row level security is on, under which claims refuse to run', 'alter table … disable row level security']
    end,
    case
      when target.relhasrules
        then array['rules are on it', 'drop them']
    end,
    (
      select array[
        'triggers would fire for the old rows only: ' || pg_catalog.string_agg(fired.tgname::text, ', ' order by fired.tgname),
        'drop them; make them again on the inbox after the swap'
      ]
      from pg_catalog.pg_trigger as fired
      where fired.tgrelid = target.oid and not fired.tgisinternal
      having pg_catalog.count(*) > 0
    ),
    (
      select array[
        'foreign keys: ' || pg_catalog.string_agg(bound.conname::text, ', ' order by bound.conname),
        'drop them: one that refers to the table would see the old rows only, and one on it is not on new days'
      ]
      from pg_catalog.pg_constraint as bound
      where bound.contype = 'f' and target.oid in (bound.conrelid, bound.confrelid)
      having pg_catalog.count(*) > 0
    ),
    (
      select array[
        'views or rules of others would go on showing the old rows only: '
          || pg_catalog.string_agg(distinct seer.relname::text, ', '),
        'drop them; make them again on the inbox after the swap'
      ]
      from pg_catalog.pg_depend as needs
      join pg_catalog.pg_rewrite as written on written.oid = needs.objid
      join pg_catalog.pg_class as seer on seer.oid = written.ev_class
      where needs.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
        and needs.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
        and needs.refobjid = target.oid and seer.oid <> target.oid
      having pg_catalog.count(*) > 0
    ),
    (
      select array[
        'functions or columns use its row type: '
          || pg_catalog.string_agg(distinct pg_catalog.pg_describe_object(needs.classid, needs.objid, 0), ', '),
        'drop them; make them again on the inbox after the swap'
      ]
      from pg_catalog.pg_depend as needs
      -- The array of the type depends on it too, and goes along.
      where needs.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass and needs.refobjid = target.reltype
        and needs.deptype = 'n'
      having pg_catalog.count(*) > 0
    ),
    (
      select array[
        'publications: ' || pg_catalog.string_agg(published.pubname::text, ', ' order by published.pubname),
        'take it out (alter publication … drop), or where it is of all tables drop that; after the swap publish with publish = ''insert'', publish_via_partition_root = true'
      ]
      from pg_catalog.pg_publication as published
      where exists (
          select
          from pg_catalog.pg_publication_rel as member
          where member.prpubid = published.oid and member.prrelid = target.oid
        )
        or (
          published.puballtables
          and not (published.pubviaroot and published.pubinsert and not published.pubupdate and not published.pubdelete and not published.pubtruncate)
        )
      having pg_catalog.count(*) > 0
    ),
    (
      select array[
        'rights on single columns would be lost: ' || pg_catalog.string_agg(attribute.attname::text, ', ' order by attribute.attnum),
        'revoke them, or grant them on the table'
      ]
      from pg_catalog.pg_attribute as attribute
      where attribute.attrelid = target.oid and attribute.attnum > 0 and attribute.attacl is not null
      having pg_catalog.count(*) > 0
    ),
    (
      select array[
        'the names that the swap needs are taken: ' || pg_catalog.string_agg(other.relname::text, ', ' order by other.relname),
        'rename or drop them'
      ]
      from pg_catalog.pg_class as other
      where $4
        and other.relnamespace = target.relnamespace
        and (
          other.relname in ($2 || '_adopted', $2 || '_adopt_parent')
          or (pg_catalog.left(other.relname, -11) = $2 and other.relname ~ '_[0-9]{4}_[0-9]{2}_[0-9]{2}$')
        )
      having pg_catalog.count(*) > 0
    ),
    case
      when not pg_catalog.pg_has_role(target.relowner, 'usage')
        then array[
          'our role is no member of its owner',
          pg_catalog.format('grant %I to %I', pg_catalog.pg_get_userbyid(target.relowner), current_user)
        ]
    end,
    case
      when not pg_catalog.has_schema_privilege(current_user, target.relnamespace, 'create')
        then array[
          'our role may not create in its schema',
          pg_catalog.format('grant create, usage on schema %I to %I', target.nspname, current_user)
        ]
    end,
    case
      when not pg_catalog.has_schema_privilege(target.relowner, target.relnamespace, 'create')
        then array[
          'its owner may not create in its schema',
          pg_catalog.format('grant create, usage on schema %I to %I', target.nspname, pg_catalog.pg_get_userbyid(target.relowner))
        ]
    end,
    case
      when not pg_catalog.has_database_privilege(current_user, pg_catalog.current_database(), 'create')
        and pg_catalog.to_regnamespace('inboxd') is null
        then array[
          'our role may not create the control schema',
          pg_catalog.format('grant create on database %I to %I', pg_catalog.current_database(), current_user)
        ]
    end
  ) as in_the_way
from target
cross join lateral (
  select
    coalesce(pg_catalog.bool_or(one.is_key), false) as has_key,
    coalesce(pg_catalog.array_agg(one.name) filter (where one.forbids and not one.is_key), '{}') as other_unique,
    coalesce(pg_catalog.array_agg(one.name) filter (where not one.forbids), '{}') as other_indexes
  from (
    select
      named.relname::text as name,
      key.indisunique or key.indisexclusion as forbids,
      key.indisunique and key.indisvalid and key.indisready and key.indimmediate
        and key.indpred is null and key.indexprs is null
        and (
          select pg_catalog.array_agg(attribute.attname::text order by attribute.attname)
          from pg_catalog.pg_attribute as attribute
          where attribute.attrelid = target.oid
            and attribute.attnum = any ((key.indkey::int2[])[0:key.indnkeyatts - 1])
        ) = case when $3 then array['consumer', 'message_id'] else array['message_id'] end as is_key
    from pg_catalog.pg_index as key
    join pg_catalog.pg_class as named on named.oid = key.indexrelid
    where key.indrelid = target.oid
  ) as one
) as indexes
