-- inboxd: clear a slot of the digest
truncate {{slot}}
