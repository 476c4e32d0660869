-- inboxd: revoke on a table
revoke {{privilege}} on table {{relation}} from {{role}}
