-- inboxd: lock a slot of the digest
--
-- Never in a queue: a claim behind it would wait as well.
lock table {{slot}} in access exclusive mode nowait
