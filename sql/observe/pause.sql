-- inboxd: observe whether the schedule is paused
select pause.paused_at, pause.paused_by, pause.reason
from inboxd.pauses as pause
where pause.deployment = $1
