-- inboxd: a run has used what was confirmed
update inboxd.confirmations as confirmed
set used_at = pg_catalog.clock_timestamp()
where confirmed.inbox_id = $1 and confirmed.what = 'drops' and confirmed.used_at is null
