-- inboxd: adopt, add a check that holds for new rows
alter table {{relation}} add constraint {{check}} check ({{condition}}) not valid
