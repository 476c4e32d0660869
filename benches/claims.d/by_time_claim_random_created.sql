-- claim, random ids of messages that were created just now
select by_time_claim(gen_random_uuid(), 'orders', now());
