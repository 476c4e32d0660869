-- inboxd: create partition, attach
alter table {{inbox}} attach partition {{partition}} for values from ({{from}}) to ({{to}})
