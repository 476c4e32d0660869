-- claim, UUIDv7 ids
select by_time_claim(@v7@, 'orders');
