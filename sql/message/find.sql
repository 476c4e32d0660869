-- inboxd: look for a message in one partition
select found.processed_at, found.topic::text as topic, {{consumer}} as consumer
from {{partition}} as found
where found.message_id = $1{{and_consumer}}
order by found.processed_at
