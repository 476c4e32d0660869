-- inboxd: drain, take a day out of the table for copies
--
-- Of a table that nobody else uses, so that its lock is in nobody's way.
alter table {{copies}} detach partition {{copy}}
