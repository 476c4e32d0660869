-- try_claim with a bound, UUIDv7 ids
select outcome from by_time_try_claim(@v7@, 'orders', null, null, '1 second');
