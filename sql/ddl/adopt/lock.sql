-- inboxd: adopt, lock the table
lock table only {{relation}} in access exclusive mode
