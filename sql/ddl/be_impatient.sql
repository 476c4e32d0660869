-- inboxd: repair key, the session's own limits again
reset all
