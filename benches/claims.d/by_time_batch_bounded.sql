-- claim_batch with a bound, UUIDv7 ids
select ord, outcome from pool, by_time_claim_batch(ids_v7, topics, null, null, '1 second') where place = (select nextval('by_time_batch'));
