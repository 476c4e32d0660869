-- inboxd: record how a run ended
update inboxd.runs
set finished_at = pg_catalog.clock_timestamp(), outcome = $2, error = $3
where id = $1
returning finished_at
