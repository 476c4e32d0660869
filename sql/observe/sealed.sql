-- inboxd: observe which tables take no row any more
select seal.tgrelid
from pg_catalog.pg_trigger as seal
where seal.tgname = 'inboxd_sealed' and seal.tgenabled in ('O', 'A') and seal.tgrelid = any ($1::oid[])
