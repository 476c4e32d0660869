-- the seed's claim, word for word, on an inbox with message_id routing
insert into by_id (message_id, topic) values (@v7@, 'orders') on conflict (message_id) do nothing returning message_id;
