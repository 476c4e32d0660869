-- inboxd: observe what is on record of a day's partition
select made.detached_at, made.dropped_at
from inboxd.partitions as made
where made.inbox_id = $1 and made.day = $2
