-- inboxd: claim_batch
--
-- Answers in the order of the input. Nothing is claimed when the batch as a whole is refused.
create or replace function {{function}}(
  message_ids uuid[], topics text[], created_ats timestamptz[], consumer text, wait interval
)
returns table (ord int, outcome text, processed_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as {{quote}}
declare
  items int := coalesce(cardinality(message_ids), 0);
  claimed record;
begin
  if items > {{max_batch}} then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = 'a batch of ' || items || ' claims is over the limit of {{max_batch}} of inbox ' || {{inbox_literal}},
      hint = 'Split the batch. Each claim holds a lock in a table that the whole server shares.';
  end if;
  if coalesce(cardinality(topics), 0) <> items or (created_ats is not null and cardinality(created_ats) <> items) then
    raise exception using
      errcode = 'array_subscript_error',
      message = 'message_ids, topics and created_ats must have the same length, they have '
        || items || ', ' || coalesce(cardinality(topics), 0) || ' and ' || coalesce(cardinality(created_ats)::text, 'NULL'),
      hint = 'created_ats may be NULL as a whole, or hold a NULL where the time is not known.';
  end if;
  if items = 0 then
    return;
  end if;
  if wait is null then
    claimed := {{batch_inner}}(message_ids, topics, created_ats, consumer);
  else
    claimed := {{bounded_batch}}(message_ids, topics, created_ats, consumer, wait);
  end if;
  if claimed.all_fresh_at is not null then
    return query select place, 'fresh'::text, claimed.all_fresh_at from generate_series(1, items) as place;
    return;
  end if;
  return query
    select given.place::int, given.outcome, given.first_at
    from unnest(claimed.outcomes, claimed.firsts) with ordinality as given (outcome, first_at, place);
end
{{quote}}
