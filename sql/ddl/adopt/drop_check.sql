-- inboxd: adopt, drop a check, under the lock that the transaction holds anyway
alter table {{relation}} drop constraint {{check}}
