-- inboxd: claim
select
  claimed.outcome,
  (extract(epoch from claimed.processed_at) * 1000000)::bigint as processed_at_us,
  (extract(epoch from clock_timestamp()) * 1000000)::bigint as clock_us,
  pg_current_xact_id_if_assigned()::text as transaction_id
from {{try_claim}}({{id}}, {{topic}}, {{created_at}}, {{consumer}}, {{wait}}) as claimed
