-- inboxd: observe the holds of a deployment
select inbox.schema_name, inbox.table_name, hold.day, hold.held_at, hold.held_by, hold.reason
from inboxd.holds as hold
join inboxd.inboxes as inbox on inbox.id = hold.inbox_id
where inbox.deployment = $1
order by inbox.schema_name, inbox.table_name, hold.day
