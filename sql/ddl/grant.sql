-- inboxd: grant on a table
grant {{privilege}} on table {{relation}} to {{role}}{{option}}
