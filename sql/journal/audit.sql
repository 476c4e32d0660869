-- inboxd: put an act on the audit
insert into inboxd.audit (actor, action, inbox_id, reason, detail)
values ($1, $2, $3, $4, $5)
