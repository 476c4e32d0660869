-- inboxd: comment on a table
comment on table {{relation}} is {{text}}
