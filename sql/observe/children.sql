-- inboxd: observe the names of a table's partitions
select child.relname::text
from pg_catalog.pg_inherits as part
join pg_catalog.pg_class as child on child.oid = part.inhrelid
join pg_catalog.pg_class as relation on relation.oid = part.inhparent
join pg_catalog.pg_namespace as space on space.oid = relation.relnamespace
where space.nspname = $1 and relation.relname = $2
order by child.relname
