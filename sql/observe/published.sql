-- inboxd: observe a publication that would publish inserts into a table
select listed.pubname::text
from pg_catalog.pg_publication_tables as listed
join pg_catalog.pg_publication as published on published.pubname = listed.pubname
where published.pubinsert and listed.schemaname = $1 and listed.tablename::text = any ($2)
limit 1
