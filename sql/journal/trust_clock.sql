-- inboxd: record the highest trusted time
insert into inboxd.clock (trusted_at)
values ($1)
on conflict (only_row) do update set trusted_at = greatest(clock.trusted_at, excluded.trusted_at)
