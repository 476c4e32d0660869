-- the seed's claim, UUIDv7 ids
insert into plain_v7 (message_id, topic) values (@v7@, 'orders') on conflict (message_id) do nothing returning message_id;
