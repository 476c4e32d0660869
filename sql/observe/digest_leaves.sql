-- inboxd: observe whether days are what a digest may be made of
--
-- How many of them are still partitions of the inbox, under the names that were planned for, and take no row any more.
select pg_catalog.count(*)
from unnest($2::oid[], $3::text[], $4::text[]) as wanted (oid, schema_name, name)
join pg_catalog.pg_inherits as link on link.inhrelid = wanted.oid
join pg_catalog.pg_class as leaf on leaf.oid = wanted.oid and leaf.relname = wanted.name
join pg_catalog.pg_namespace as space on space.oid = leaf.relnamespace and space.nspname = wanted.schema_name
where link.inhparent = pg_catalog.to_regclass($1) and not link.inhdetachpending
  and exists (
    select
    from pg_catalog.pg_trigger as seal
    where seal.tgrelid = leaf.oid and seal.tgname = 'inboxd_sealed' and seal.tgenabled in ('O', 'A')
  )
