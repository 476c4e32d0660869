-- inboxd: put a day on hold
--
-- One that is on hold already keeps its time, its reason, and who it was. The update changes nothing: it lets the row come
-- back, also one that another session has just written. xmax is 0 on a row that this statement has made.
insert into inboxd.holds (inbox_id, day, held_by, reason)
values ($1, $2, $3, $4)
on conflict (inbox_id, day) do update set day = excluded.day
returning held_at, held_by, reason, xmax = 0 as is_new
