-- inboxd: move a detached partition to the archive
alter table {{relation}} set schema {{schema}}
