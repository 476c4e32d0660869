-- inboxd: create partition, drop check
--
-- Only in the transaction that made the table: on a partition that others can see this would lock them out.
alter table {{partition}} drop constraint {{check}}
