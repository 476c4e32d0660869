-- inboxd: adopt, drop a check, of a table that nobody sees yet or that the transaction has locked
alter table {{relation}} drop constraint {{check}}
