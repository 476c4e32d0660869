-- inboxd: adopt, rename the table to the partition that it becomes
alter table {{relation}} rename to {{name}}
