with texts as (
  select 'relation' as what, concat_ws(' ',
    relation.relname, relation.relkind, relation.relispersistent, relation.relowner::regrole, relation.relreplident,
    relation.relacl, relation.reloptions,
    'of', (select inhparent::regclass from pg_inherits where inhrelid = relation.oid), pg_get_expr(relation.relpartbound, relation.oid),
    'comment', obj_description(relation.oid, 'pg_class')
  ) as text
  from (select *, relpersistence as relispersistent from pg_class) as relation
  where relation.relnamespace = 'public'::regnamespace
  union all
  select 'column', concat_ws(' ',
    attribute.attrelid::regclass, attribute.attname, format_type(attribute.atttypid, attribute.atttypmod), attribute.attnotnull,
    (select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = attribute.attrelid and adnum = attribute.attnum)
  )
  from pg_attribute as attribute
  join pg_class as relation on relation.oid = attribute.attrelid
  where relation.relnamespace = 'public'::regnamespace and attribute.attnum > 0 and relation.relkind <> 'i'
  union all
  select 'constraint', concat_ws(' ', conrelid::regclass, conname, convalidated, pg_get_constraintdef(oid))
  from pg_constraint
  where connamespace = 'public'::regnamespace
  union all
  select 'index', concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid)
  from pg_index
  where indrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)
  union all
  select 'function', concat_ws(' ', oid::regprocedure, proowner::regrole, proacl, md5(regexp_replace(regexp_replace(
    prosrc, '[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}', 'ID', 'g'), '-?[0-9]{7,}', 'N', 'g')), obj_description(oid, 'pg_proc'))
  from pg_proc
  where pronamespace = 'public'::regnamespace
),
lines as (
  select what || ': ' || text as line from texts
)
select regexp_replace(regexp_replace(line, '[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}', 'ID', 'g'), '-?[0-9]{9,}', 'N', 'g')
from lines
