-- inboxd: drop an index that an interrupted repair left invalid
drop index concurrently {{index}}
