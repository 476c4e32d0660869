-- inboxd: finalize detach
alter table {{inbox}} detach partition {{partition}} finalize
