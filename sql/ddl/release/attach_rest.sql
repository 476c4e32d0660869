-- inboxd: release, attach a partition without an upper bound
alter table {{inbox}} attach partition {{partition}} for values from ({{from}}) to (maxvalue)
