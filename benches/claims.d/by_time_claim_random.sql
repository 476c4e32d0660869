-- claim, random ids
select by_time_claim(gen_random_uuid(), 'orders');
