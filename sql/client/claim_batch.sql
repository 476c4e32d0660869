-- inboxd: claim_batch
select
  claimed.ord,
  claimed.outcome,
  extract(epoch from claimed.processed_at) as processed_at,
  extract(epoch from clock_timestamp()) as clock,
  pg_current_xact_id_if_assigned() as transaction_id
from {{claim_batch}}({{ids}}, {{topics}}, {{created_ats}}, {{consumer}}, {{wait}}) as claimed
order by claimed.ord
