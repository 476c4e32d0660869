-- inboxd: set owner
alter table {{relation}} owner to {{role}}
