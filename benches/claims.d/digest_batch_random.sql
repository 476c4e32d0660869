-- claim_batch, random ids, with a digest
select ord, outcome from pool, digest_claim_batch(ids_random, topics, null, null, null) where place = (select nextval('digest_batch_random'));
