-- inboxd: build digest, in place of an older one
delete from {{slot}}
