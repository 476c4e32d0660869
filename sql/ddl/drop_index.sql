-- inboxd: repair key, without what an interrupted repair left
drop index concurrently {{index}}
