-- A delete published as one of the root names its row by the root's replica identity. Without one a subscriber's apply
  -- stops at it, and stops again at each restart. (A partition that has no identity of its own is refused by the server.)
  select published.pubname
  into publication
  from pg_publication as published
  join pg_class as root on root.oid = {{inbox_literal}}::regclass
  join pg_namespace as namespace on namespace.oid = root.relnamespace
  where published.pubdelete and published.pubviaroot
    and root.relreplident <> 'f'
    and not exists (
      select
      from pg_index as identity
      where identity.indrelid = root.oid and identity.indisvalid
        and case root.relreplident when 'd' then identity.indisprimary when 'i' then identity.indisreplident else false end
    )
    and exists (
      select
      from pg_publication_tables as listed
      where listed.pubname = published.pubname
        and listed.schemaname = namespace.nspname and listed.tablename = root.relname
    )
  limit 1;
  if publication is not null then
    raise exception using
      errcode = 'IX006',
      message = 'inbox ' || {{inbox_literal}} || ' has no replica identity, and publication ' || quote_ident(publication)
        || ' publishes deletes through it: a forget would stop its subscribers',
      hint = 'Take deletes out of it, which an inbox does not need: alter publication ' || quote_ident(publication)
        || ' set (publish = ''insert''). Or publish the partitions as themselves: publish_via_partition_root = false.';
  end if;
