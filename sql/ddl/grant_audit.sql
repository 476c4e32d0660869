-- inboxd: grant what a forget needs to leave its trace
grant insert on table inboxd.audit to {{role}}
