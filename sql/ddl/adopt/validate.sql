-- inboxd: adopt, make sure that a check holds for all rows
alter table {{relation}} validate constraint {{check}}
