-- inboxd: forget a message
select {{function}}($1, $2, $3)
