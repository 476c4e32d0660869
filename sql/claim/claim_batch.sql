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
  ids uuid[];
  sorted_topics text[];
  sorted_created_ats timestamptz[];
  places int[];
  claimed record;
  outcomes text[];
  firsts timestamptz[];
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
  select
    array_agg(given.id order by {{batch_order}}, given.id, given.place),
    array_agg(given.topic order by {{batch_order}}, given.id, given.place),
    array_agg(given.created order by {{batch_order}}, given.id, given.place),
    array_agg(given.place::int order by {{batch_order}}, given.id, given.place)
  into ids, sorted_topics, sorted_created_ats, places
  from unnest(message_ids, topics, created_ats) with ordinality as given (id, topic, created, place);

  if wait is null then
    for n in 1..items loop
      if ids[n] = ids[n - 1] then
        -- It stands earlier in this batch: whatever became of that one holds for this one too.
        outcomes[n] := case outcomes[n - 1] when 'fresh' then 'repeated' else outcomes[n - 1] end;
        firsts[n] := firsts[n - 1];
      else
        claimed := {{inner}}(ids[n], sorted_topics[n], sorted_created_ats[n], consumer);
        outcomes[n] := claimed.outcome;
        firsts[n] := claimed.first_at;
      end if;
    end loop;
  elsif items > 0 then
    claimed := {{bounded_batch}}(ids, sorted_topics, sorted_created_ats, consumer, wait);
    outcomes := claimed.outcomes;
    firsts := claimed.firsts;
  end if;
  return query
    select given.place, given.outcome, given.first_at
    from unnest(places, outcomes, firsts) as given (place, outcome, first_at)
    order by given.place;
end
{{quote}}
