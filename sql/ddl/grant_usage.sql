-- inboxd: grant usage on a schema
grant usage on schema {{schema}} to {{role}}
