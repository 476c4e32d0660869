-- inboxd: observe an index that an interrupted repair left invalid
select index.relname::text as index_name
from pg_catalog.pg_index as broken
join pg_catalog.pg_class as index on index.oid = broken.indexrelid
where broken.indrelid = $1
  and not broken.indisvalid
  and index.relname = $2
