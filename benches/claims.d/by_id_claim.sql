-- claim, UUIDv7 ids
select by_id_claim(@v7@, 'orders');
