-- inboxd: open
--
-- What a consumer may read about an inbox: the comment of its claim function. The control schema is none of its business.
select
  obj_description(claim.oid, 'pg_proc') as comment,
  has_function_privilege(claim.oid, 'execute') as may_claim,
  current_user::text as role,
  (select setting::bigint from pg_settings where name = 'idle_in_transaction_session_timeout') as idle_limit_ms,
  (select setting::bigint from pg_settings where name = 'transaction_timeout') as transaction_limit_ms
from pg_proc as claim
join pg_namespace as schema on schema.oid = claim.pronamespace
where schema.nspname = {{schema}} and claim.proname = {{function}}
  and claim.proargtypes = array[
    'uuid'::regtype::oid, 'text'::regtype::oid, 'timestamptz'::regtype::oid, 'text'::regtype::oid
  ]::oidvector
