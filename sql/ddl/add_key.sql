-- inboxd: create partition, key
alter table {{partition}} add constraint {{key}} primary key ({{columns}})
