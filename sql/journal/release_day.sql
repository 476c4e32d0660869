-- inboxd: release a day from its hold
delete from inboxd.holds as hold
where hold.inbox_id = $1 and hold.day = $2
returning hold.held_at, hold.held_by, hold.reason
