-- claim_batch, UUIDv7 ids
select ord, outcome from pool, by_time_claim_batch(ids_v7, topics, null, null, null) where place = (select nextval('by_time_batch'));
