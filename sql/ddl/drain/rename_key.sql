-- inboxd: drain, rename the key of a copy
alter table {{partition}} rename constraint {{copy_key}} to {{key}}
