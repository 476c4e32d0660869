-- inboxd: a person confirms removals beyond the cap
insert into inboxd.confirmations (what, inbox_id, confirmed_by, detach_days, drop_days)
values ('drops', $1, $2, $3, $4)
returning confirmed_at
