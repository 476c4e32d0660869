-- inboxd: a replica ends
delete from inboxd.replicas as replica where replica.id = $1
