-- When the last sealed day ended; the day of a seal is the argument of its trigger.
select ((max(encode(substr(seal.tgargs, 1, 10), 'escape'))::date + 1)::timestamp at time zone 'UTC')
from pg_catalog.pg_inherits as child
join pg_catalog.pg_trigger as seal on seal.tgrelid = child.inhrelid
where child.inhparent = {{inbox_literal}}::regclass and seal.tgname = 'inboxd_sealed' and not seal.tgisinternal
