-- inboxd: drain, rename a copy to the partition that it becomes
alter table {{copy}} rename to {{partition}}
