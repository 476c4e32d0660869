-- inboxd: observe the trusted clock
select clock.trusted_at
from inboxd.clock as clock
where exists (select from inboxd.inboxes)
