-- inboxd: observe whether an inbox is on record
select exists (
  select
  from inboxd.inboxes as inbox
  where inbox.id = $1
)
