-- inboxd: cancel the statement that a session of ours has in hand
select pg_catalog.pg_cancel_backend($1)
