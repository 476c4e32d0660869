-- inboxd: adopt, rename the table to the partition that it becomes, or the parent to its name
alter table {{relation}} rename to {{name}}
