-- inboxd: repair key
create unique index concurrently {{index}} on {{relation}} ({{columns}})
