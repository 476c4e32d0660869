-- inboxd: observe the digest's slots
--
-- In the order of the names asked for.
select
  slot.relname::text as name,
  slot.oid,
  pg_catalog.pg_relation_size(slot.oid) as bytes
from unnest($2::text[]) with ordinality as wanted (name, place)
join pg_catalog.pg_namespace as space on space.nspname = $1
join pg_catalog.pg_class as slot on slot.relnamespace = space.oid and slot.relname = wanted.name
where slot.relkind = 'r' and pg_catalog.obj_description(slot.oid, 'pg_class') = $3
order by wanted.place
