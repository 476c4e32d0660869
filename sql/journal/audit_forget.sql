-- inboxd: put on the audit who had a message forgotten
--
-- The function has written its line in this transaction, under the name of the session's role: the newest of this session.
update inboxd.audit
set actor = $1, reason = $2
where id = pg_catalog.currval(pg_catalog.pg_get_serial_sequence('inboxd.audit', 'id')) and action = 'forget'
