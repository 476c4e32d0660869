-- inboxd: observe the comment of a claim function
select pg_catalog.obj_description(claim.oid, 'pg_proc')
from pg_catalog.pg_proc as claim
join pg_catalog.pg_namespace as space on space.oid = claim.pronamespace
where space.nspname = $1
  and claim.proname = $2 || '_claim'
  and claim.proargtypes = '2950 25 1184 25'::pg_catalog.oidvector
