-- inboxd: build digest, count what it is made of
select coalesce(sum(counted.ids), 0)::bigint
from (
  {{counts}}
) as counted (ids)
