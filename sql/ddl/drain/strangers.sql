-- inboxd: drain, rows that belong to no day that an inbox keeps
select pg_catalog.count(*)
from (select from only {{default}} as held where {{strange}} limit 1000) as stranger
