-- claim_batch, random ids
select ord, outcome from pool, by_time_claim_batch(ids_random, topics, null, null, null) where place = (select nextval('by_time_batch_random'));
