-- inboxd: claim_batch
select
  claimed.ord,
  claimed.outcome,
  (extract(epoch from claimed.processed_at) * 1000000)::bigint as processed_at_us,
  (extract(epoch from clock_timestamp()) * 1000000)::bigint as clock_us,
  pg_current_xact_id_if_assigned()::text as transaction_id
from {{claim_batch}}({{ids}}, {{topics}}, {{created_ats}}, {{consumer}}, {{wait}}) as claimed
order by claimed.ord
