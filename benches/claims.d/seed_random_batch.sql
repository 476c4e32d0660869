-- the seed's claim of a batch, random ids
insert into plain_random (message_id, topic) select unnest(ids_random), 'orders' from pool where place = (select nextval('seed_random_batch')) on conflict (message_id) do nothing returning message_id;
