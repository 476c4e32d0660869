-- inboxd: the run that is going
select run.id
from inboxd.runs as run
where run.deployment = $1 and run.finished_at is null
order by run.ordinal desc
limit 1
