-- inboxd: detach partition
alter table {{inbox}} detach partition {{partition}} concurrently
