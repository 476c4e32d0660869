-- inboxd: drop a detached partition
drop table {{relation}}
