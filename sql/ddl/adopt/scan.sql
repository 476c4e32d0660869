-- inboxd: adopt, look for rows that could not stay
select
  pg_catalog.count(*) filter (where held.processed_at >= {{until}}) as too_new,
  pg_catalog.count(*) filter (where {{is_unfilled}}) as unfilled
from only {{relation}} as held
