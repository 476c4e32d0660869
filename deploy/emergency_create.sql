-- One statement to run by hand when inboxd is gone and the runway is short: it makes the partitions that are missing from
-- today to seven days ahead, as inboxd would, and no claim waits for it. When inboxd is back it takes them as its own.
--
-- Set the first constant to the inbox's table, and run it as inboxd's role or a superuser:
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f emergency_create.sql
-- It tells each day that it makes, and warns of each that it cannot make; nothing half-made remains, and running it again
-- is harmless. `\d+ inbox` in psql shows what is in the way.
do $$
declare
  the_inbox constant regclass := 'public.inbox';
  days_ahead constant int := 7;
  inbox record;
  day date;
  leaf name;
  partition text;
  lower_end text;
  upper_end text;
  privilege record;
begin
  -- Rather fail than make a claim queue behind this.
  perform set_config('lock_timeout', '2s', true);

  select
    space.nspname as schema_name,
    class.relname as table_name,
    class.relowner as owner,
    class.relreplident as replica_identity,
    coalesce(class.relacl, acldefault('r', class.relowner)) as privileges,
    place.spcname as tablespace,
    attribute.attname as key_column,
    exists (
      select from pg_attribute as consumer
      where consumer.attrelid = class.oid and consumer.attname = 'consumer' and not consumer.attisdropped
    ) as for_many,
    -- The identity that inboxd gave the inbox. Without it inboxd marks the partitions later.
    obj_description(
      to_regprocedure(format('%I.%I(uuid, text, timestamptz, text)', space.nspname, class.relname || '_claim')), 'pg_proc'
    )::jsonb -> 'inboxd' ->> 'inbox' as identity
  into inbox
  from pg_class as class
  join pg_namespace as space on space.oid = class.relnamespace
  join pg_partitioned_table as part on part.partrelid = class.oid and part.partstrat = 'r' and part.partnatts = 1
  join pg_attribute as attribute on attribute.attrelid = class.oid and attribute.attnum = part.partattrs[0]
  left join pg_tablespace as place on place.oid = class.reltablespace
  where class.oid = the_inbox and attribute.attname in ('processed_at', 'message_id');
  if not found then
    raise exception '% is no inbox: it is not partitioned by a range of processed_at or message_id', the_inbox;
  end if;

  for ahead in 0 .. days_ahead loop
    day := (clock_timestamp() at time zone 'UTC')::date + ahead;
    leaf := inbox.table_name || to_char(day, '_YYYY_MM_DD');
    partition := format('%I.%I', inbox.schema_name, leaf);
    -- Days are of UTC. By id: the milliseconds since 1970 in 48 bits, as the day's first UUIDv7 begins, then zeros.
    if inbox.key_column = 'processed_at' then
      lower_end := to_char(day, 'YYYY-MM-DD 00:00:00+00');
      upper_end := to_char(day + 1, 'YYYY-MM-DD 00:00:00+00');
    else
      lower_end := rpad(lpad(to_hex((day - date '1970-01-01') * bigint '86400000'), 12, '0'), 32, '0')::uuid;
      upper_end := rpad(lpad(to_hex((day + 1 - date '1970-01-01') * bigint '86400000'), 12, '0'), 32, '0')::uuid;
    end if;
    continue when exists (
      select
      from pg_inherits as child
      join pg_class as class on class.oid = child.inhrelid
      where child.inhparent = the_inbox and not child.inhdetachpending and class.relname = leaf
    );

    begin
      -- A table of its own first, so that attaching it meets no claim; the check spares the attach its scan.
      execute format(
        'create table %s (like %s including defaults including constraints including generated including storage'
        ' including compression) with (autovacuum_vacuum_insert_threshold = -1, vacuum_truncate = false)%s',
        partition, the_inbox, coalesce(' tablespace ' || quote_ident(inbox.tablespace), '')
      );
      execute format('alter table %s owner to %I', partition, pg_get_userbyid(inbox.owner));
      -- The inbox's privileges, whatever the default privileges have given it.
      for privilege in
        select acl.grantee, acl.privilege_type, acl.is_grantable, true as wanted
        from aclexplode(inbox.privileges) as acl
        union all
        select acl.grantee, acl.privilege_type, acl.is_grantable, false
        from pg_class as class, aclexplode(class.relacl) as acl
        where class.oid = partition::regclass
        order by wanted
      loop
        continue when privilege.grantee = inbox.owner;
        execute format(
          case when privilege.wanted then 'grant %s on %s to %s%s' else 'revoke %s on %s from %s' end,
          privilege.privilege_type,
          partition,
          case privilege.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(privilege.grantee)) end,
          case when privilege.is_grantable then ' with grant option' else '' end
        );
      end loop;
      if inbox.replica_identity in ('f', 'n') then
        execute format(
          'alter table %s replica identity %s',
          partition, case inbox.replica_identity when 'f' then 'full' else 'nothing' end
        );
      end if;
      -- What makes claims exact. Without it each of them would fail.
      execute format(
        'alter table %s add constraint %I primary key (message_id%s)',
        partition, leaf || '_pkey', case when inbox.for_many then ', consumer' else '' end
      );
      execute format(
        'alter table %s add constraint inboxd_emergency check (%I >= %L and %I < %L)',
        partition, inbox.key_column, lower_end, inbox.key_column, upper_end
      );
      if inbox.identity is not null then
        execute format(
          'comment on table %s is %L',
          partition, format('inboxd inbox=%s day=%s', inbox.identity, to_char(day, 'YYYY-MM-DD'))
        );
      end if;
      execute format('alter table %s attach partition %s for values from (%L) to (%L)', the_inbox, partition, lower_end, upper_end);
      execute format('alter table %s drop constraint inboxd_emergency', partition);
      raise notice 'made %', partition;
    exception
      -- A table of that name is there; another partition holds the day or a part of it.
      when duplicate_table or invalid_object_definition then
        raise warning 'not made: %: %', partition, sqlerrm;
    end;
  end loop;
end
$$;
