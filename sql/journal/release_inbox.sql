-- inboxd: take an inbox off the record; what the audit says of it stays
with holds as (delete from inboxd.holds as held where held.inbox_id = $1),
confirmations as (delete from inboxd.confirmations as confirmed where confirmed.inbox_id = $1),
steps as (delete from inboxd.steps as step where step.inbox_id = $1),
partitions as (delete from inboxd.partitions as made where made.inbox_id = $1)
delete from inboxd.inboxes as inbox where inbox.id = $1
