-- inboxd: pause the schedule of a deployment
--
-- One that is paused already keeps its time, its reason, and who it was; see hold_day.sql.
insert into inboxd.pauses (deployment, paused_by, reason)
values ($1, $2, $3)
on conflict (deployment) do update set deployment = excluded.deployment
returning paused_at, paused_by, reason, xmax = 0 as is_new
