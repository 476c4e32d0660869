-- inboxd: claim batch, inner, message_id routing
--
-- One insert in the order of the ids, so that two batches in opposite order cannot deadlock. Nearly always that is all;
-- what it did not take is looked at one by one.
create or replace function {{function}}(
  message_ids uuid[], topics text[], created_ats timestamptz[], msg_consumer text,
  out all_fresh_at timestamptz, out outcomes text[], out firsts timestamptz[]
)
language plpgsql volatile
as {{quote}}
#variable_conflict use_column
declare
  items int := cardinality(message_ids);
  clock timestamptz := clock_timestamp();
  -- The ids of the first and of the first too late millisecond: comparing them is cheaper than taking times out of ids.
  lowest uuid := (lpad(to_hex((extract(epoch from greatest({{oldest}}, timestamptz 'epoch')) * 1000)::bigint), 12, '0')
    || repeat('0', 20))::uuid;
  beyond uuid := (lpad(to_hex((extract(epoch from date_trunc('day', clock, 'UTC') + interval {{horizon}}) * 1000)::bigint), 12, '0')
    || repeat('0', 20))::uuid;
  -- One place for each message that the inbox takes, in the order of the ids.
  ids uuid[];
  subjects text[];
  told text[];
  told_ats timestamptz[];
  taken uuid[];
  rest uuid[];
  place int;
  outcome text;
  first_at timestamptz;
  writer text;
  reference bigint;
  writer_id bigint;
  held record;
  item record;
begin
  if not coalesce({{consumer_is_named}}, false) and exists (
    select
    from unnest(message_ids) as given (id)
    where get_byte(uuid_send(given.id), 6) >> 4 = 7 and get_byte(uuid_send(given.id), 8) >> 6 = 2
  ) then
    {{consumer_check}}
  end if;
  with claimed as (
    insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
    select given.id, given.topic, clock{{consumer_argument}}
    from unnest(message_ids, topics) as given (id, topic)
    where get_byte(uuid_send(given.id), 6) >> 4 = 7 and get_byte(uuid_send(given.id), 8) >> 6 = 2
      and given.id >= lowest and given.id < beyond
    order by given.id
    on conflict (message_id{{consumer_column}}) do nothing
    returning message_id
  )
  select array_agg(claimed.message_id) into taken from claimed;
  if cardinality(taken) = items then
    all_fresh_at := clock;
    return;
  end if;

  select array_agg(sorted.id), array_agg(sorted.topic), array_agg(null::text), array_agg(null::timestamptz)
  into ids, subjects, told, told_ats
  from (
    select distinct on (given.id) given.id, given.topic
    from unnest(message_ids, topics) with ordinality as given (id, topic, place)
    where get_byte(uuid_send(given.id), 6) >> 4 = 7 and get_byte(uuid_send(given.id), 8) >> 6 = 2
      and given.id >= lowest and given.id < beyond
    order by given.id, given.place
  ) as sorted;
  -- Bounded: a row that stands in the way and is gone again was taken out by a forget.
  for attempt in 1..4 loop
    -- They come back in the order in which they went in.
    place := 1;
    for n in 1..coalesce(cardinality(taken), 0) loop
      while ids[place] < taken[n] loop
        place := place + 1;
      end loop;
      told[place] := 'fresh';
      told_ats[place] := clock;
    end loop;
    rest := array(select left_over.id from unnest(ids, told) as left_over (id, told) where left_over.told is null);
    exit when cardinality(rest) = 0;
    if attempt = 4 then
      {{forgotten_again_of_rest}}
    end if;
    place := 1;
    for held in execute {{batch_match}} using rest, msg_consumer loop
      while ids[place] < held.message_id loop
        place := place + 1;
      end loop;
      first_at := held.processed_at;
      writer := held.writer;
      {{outcome_of_row}}
      told[place] := outcome;
      told_ats[place] := first_at;
    end loop;
    with claimed as (
      insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
      select left_over.id, left_over.topic, clock{{consumer_argument}}
      from unnest(ids, subjects, told) as left_over (id, topic, told)
      where left_over.told is null
      order by left_over.id
      on conflict (message_id{{consumer_column}}) do nothing
      returning message_id
    )
    select array_agg(claimed.message_id) into taken from claimed;
  end loop;
  outcomes := array_fill('invalid'::text, array[items]);
  firsts := array_fill(null::timestamptz, array[items]);
  for item in
    select
      given.place::int, given.id >= lowest as young, given.id < beyond as old,
      dense_rank() over (partition by given.id >= lowest and given.id < beyond order by given.id)::int as slot,
      row_number() over (partition by given.id order by given.place) as nth
    from unnest(message_ids) with ordinality as given (id, place)
    where get_byte(uuid_send(given.id), 6) >> 4 = 7 and get_byte(uuid_send(given.id), 8) >> 6 = 2
  loop
    outcomes[item.place] := case
      when not item.young then 'too_old'
      when not item.old then 'too_new'
      when item.nth > 1 and told[item.slot] = 'fresh' then 'repeated'
      else told[item.slot]
    end;
    if item.young and item.old then
      firsts[item.place] := told_ats[item.slot];
    end if;
  end loop;
end
{{quote}}
