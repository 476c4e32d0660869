-- inboxd: observe whose a function is and who else may execute it
select
  pg_catalog.pg_get_userbyid(found.proowner)::text as owner,
  array(
    select distinct pg_catalog.pg_get_userbyid(granted.grantee)::text
    from pg_catalog.aclexplode(found.proacl) as granted
    where granted.grantee not in (0, found.proowner)
  ) as grantees
from pg_catalog.pg_proc as found
where found.oid = pg_catalog.to_regprocedure($1)
