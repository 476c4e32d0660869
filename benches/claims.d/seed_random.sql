-- the seed's claim, random ids
insert into plain_random (message_id, topic) values (gen_random_uuid(), 'orders') on conflict (message_id) do nothing returning message_id;
