-- inboxd: claim_batch
--
-- Claims in the order of the lock key (in message_id routing, of the id), so that two batches in opposite order cannot
-- deadlock, and answers in the order of the input. Nothing is claimed when the batch as a whole is refused.
create or replace function {{function}}(
  message_ids uuid[], topics text[], created_ats timestamptz[], consumer text, wait interval
)
returns table (ord int, outcome text, processed_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as {{quote}}
declare
  items int := coalesce(cardinality(message_ids), 0);
  item record;
  claimed record;
  previous_id uuid;
  outcomes text[] := array_fill(null::text, array[items]);
  firsts timestamptz[] := array_fill(null::timestamptz, array[items]);
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
  for item in
    select given.place, given.id, given.topic, given.created
    from unnest(message_ids, topics, created_ats) with ordinality as given (id, topic, created, place)
    order by {{batch_order}}, given.id, given.place
  loop
    if item.id = previous_id then
      -- It stands earlier in this batch: whatever became of that one holds for this one too.
      outcome := case claimed.outcome when 'fresh' then 'repeated' else claimed.outcome end;
    else
      if wait is null then
        claimed := {{inner}}(item.id, item.topic, item.created, consumer);
      else
        claimed := {{bounded}}(item.id, item.topic, item.created, consumer, wait);
      end if;
      outcome := claimed.outcome;
    end if;
    previous_id := item.id;
    outcomes[item.place] := outcome;
    firsts[item.place] := claimed.first_at;
  end loop;
  return query
    select given.place::int, given.outcome, given.first_at
    from unnest(outcomes, firsts) with ordinality as given (outcome, first_at, place)
    order by given.place;
end
{{quote}}
