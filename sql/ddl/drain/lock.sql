-- inboxd: drain, lock one table without its partitions
lock table only {{relation}} in access exclusive mode
