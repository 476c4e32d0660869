-- inboxd: canary claim
--
-- A UUIDv7 of the database's own now, so that both routings take it: version 4 becomes 7 where bits 52 and 53 are set.
select claimed.outcome
from {{try_claim}}(
  encode(
    set_bit(
      set_bit(
        overlay(
          uuid_send(gen_random_uuid())
          placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
          from 1 for 6
        ),
        52, 1
      ),
      53, 1
    ),
    'hex'
  )::uuid,
  'inboxd.canary',
  null,
  {{consumer}},
  {{wait}}
) as claimed
