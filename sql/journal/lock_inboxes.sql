-- inboxd: one init at a time
lock table inboxd.inboxes in share row exclusive mode
