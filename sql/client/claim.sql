-- inboxd: claim
--
-- With the outcome come the server's clock, against which ages are told, and the transaction's id, by which its commit is
-- verified. Times travel as microseconds since 1970: their text would follow the session's DateStyle.
select
  claimed.outcome,
  (extract(epoch from claimed.processed_at) * 1000000)::bigint as processed_at_us,
  (extract(epoch from clock_timestamp()) * 1000000)::bigint as clock_us,
  pg_current_xact_id_if_assigned()::text as transaction_id
from {{try_claim}}({{id}}, {{topic}}, {{created_at}}, {{consumer}}, {{wait}}) as claimed
