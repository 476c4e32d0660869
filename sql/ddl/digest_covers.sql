-- inboxd: observe what a slot of the digest covers
--
-- Its first row says it for all: there is one for every hash.
select first.covered_from, first.covered_to
from {{slot}} as first
where first.lock_key = {{lock_key}}
order by first.hash_from
limit 1
