-- inboxd: create control schema
create schema inboxd
