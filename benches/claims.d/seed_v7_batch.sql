-- the seed's claim of a batch, UUIDv7 ids
insert into plain_v7 (message_id, topic) select unnest(ids_v7), 'orders' from pool where place = (select nextval('seed_v7_batch')) on conflict (message_id) do nothing returning message_id;
