-- claim, random ids, with a digest
select digest_claim(gen_random_uuid(), 'orders');
