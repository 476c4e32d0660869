-- inboxd: resume the schedule of a deployment
delete from inboxd.pauses as pause
where pause.deployment = $1
returning pause.paused_at, pause.paused_by, pause.reason
