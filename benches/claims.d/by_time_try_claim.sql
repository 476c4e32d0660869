-- try_claim without a bound, UUIDv7 ids
select outcome from by_time_try_claim(@v7@, 'orders', null, null, null);
