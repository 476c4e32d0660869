-- inboxd: set replica identity
alter table {{relation}} replica identity {{identity}}
