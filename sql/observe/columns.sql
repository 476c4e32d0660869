-- inboxd: observe the columns of a table that can be written
select attribute.attname::text
from pg_catalog.pg_attribute as attribute
join pg_catalog.pg_class as relation on relation.oid = attribute.attrelid
join pg_catalog.pg_namespace as space on space.oid = relation.relnamespace
where space.nspname = $1 and relation.relname = $2
  and attribute.attnum > 0 and not attribute.attisdropped and attribute.attgenerated = ''
order by attribute.attnum
