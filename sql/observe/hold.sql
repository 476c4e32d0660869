-- inboxd: observe whether a day is on hold
select exists (
  select
  from inboxd.holds as hold
  where hold.inbox_id = $1 and hold.day = $2
)
