-- inboxd: create partition, check
alter table {{partition}} add constraint {{check}} check ({{column}} >= {{from}} and {{column}} < {{to}})
