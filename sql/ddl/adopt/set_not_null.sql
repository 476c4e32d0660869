-- inboxd: adopt, rule out nulls, which a validated check has shown not to be there
alter table {{relation}} alter column {{column}} set not null
