-- inboxd: lock what becomes of a day
--
-- Whoever puts the day on hold and whoever removes its table take turns; it ends with the transaction. Claims lock one
-- number, this is a pair, and PostgreSQL never takes the one for the other: no claim meets it.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('inboxd day ' || $1::uuid), $2::date - date 'epoch')
