-- inboxd: claim
select
  claimed.outcome,
  extract(epoch from claimed.processed_at){{as_text}} as processed_at,
  extract(epoch from clock_timestamp()){{as_text}} as clock,
  pg_current_xact_id_if_assigned(){{as_text}} as transaction_id
from {{try_claim}}({{id}}, {{topic}}, {{created_at}}, {{consumer}}, {{wait}}) as claimed
