-- inboxd: claim batch, inner, processed_at routing
--
-- The order of the single claim, for all messages at once: all locks, in the order of the lock key, so that two batches in
-- opposite order cannot deadlock; then the clock; then, in later statements, one look back for all and one insert.
create or replace function {{function}}(
  message_ids uuid[], topics text[], created_ats timestamptz[], msg_consumer text,
  out all_fresh_at timestamptz, out outcomes text[], out firsts timestamptz[]
)
language plpgsql volatile
as {{quote}}
#variable_conflict use_variable
declare
  items int := cardinality(message_ids);
  -- One place for each message that is valid, in the order of the locks.
  ids uuid[];
  subjects text[];
  createds timestamptz[];
  keys bigint[];
  sinces timestamptz[];
  held_ats timestamptz[];
  writers text[];
  told text[];
  wanted int;
  is_ruled_out boolean := false;
  -- What a look found: the places, the times and the writers of the rows.
  found_places int[];
  found_ats timestamptz[];
  found_writers text[];
  taken uuid[];
  holders oid[];
  holder oid;
  next_taken int;
  clock timestamptz;
  day_start timestamptz;
  day_end timestamptz;
  today date;
  planned date;
  oldest timestamptz;
  since timestamptz;
  outcome text;
  first_at timestamptz;
  writer text;
  reference bigint;
  writer_id bigint;
  item record;
begin
  select array_agg(sorted.id), array_agg(sorted.topic), array_agg(sorted.created), array_agg(sorted.key)
  into ids, subjects, createds, keys
  from (
    select distinct on (keyed.key, keyed.id) keyed.*
    from (
      select
        {{given_key}} as key, given.id, given.topic, given.created, given.place
      from unnest(message_ids, topics, created_ats) with ordinality as given (id, topic, created, place)
      where given.id <> '00000000-0000-0000-0000-000000000000'
    ) as keyed
    order by keyed.key, keyed.id, keyed.place
  ) as sorted;
  wanted := coalesce(cardinality(ids), 0);
  if wanted = 0 then
    outcomes := array_fill('invalid'::text, array[items]);
    return;
  end if;
  {{consumer_check}}
  {{reads_committed}}

  perform pg_advisory_xact_lock(locked.key) from unnest(keys) as locked (key);

  clock := clock_timestamp();
  -- Bounded, and begun anew where the day is sealed, as in the single claim.
  <<anew>>
  for round in 1..3 loop
    day_start := date_trunc('day', clock, 'UTC');
    day_end := day_start + interval '24 hours';
    today := (clock at time zone 'UTC')::date;
    oldest := {{oldest}};
    held_ats := array_fill(null::timestamptz, array[wanted]);
    told := array_fill(null::text, array[wanted]);
    writers := null;
    {{batch_ruled_out}}
    if is_ruled_out then
      since := day_start;
    else
      select array_agg(bound.since), min(bound.since)
      into sinces, since
      from (
        select greatest(oldest, date_trunc(
          'day',
          greatest(case when made.created <= clock + interval {{producer_clock_tolerance}} then made.created end, timestamptz 'epoch')
            - interval {{producer_clock_tolerance}},
          'UTC'
        )) as since
        from (
          select case
            when get_byte(uuid_send(given.id), 6) >> 4 = 7 and get_byte(uuid_send(given.id), 8) >> 6 = 2 then
              least(given.created, timestamptz 'epoch' + ('x' || encode(substr(uuid_send(given.id), 1, 6), 'hex'))::bit(48)::bigint
                * interval '1 millisecond')
            else given.created
          end as created
          from unnest(ids, createds) as given (id, created)
        ) as made
      ) as bound;
      {{batch_digest_since}}
    end if;
    planned := null;
    if since < day_start then
      {{batch_look_back}}
      if planned is distinct from today then
        execute {{batch_look}} into found_places, found_ats, found_writers
        using ids, sinces, null::int[], since, day_start, msg_consumer;
      end if;
      for n in 1..coalesce(cardinality(found_places), 0) loop
        held_ats[found_places[n]] := found_ats[n];
        writers[found_places[n]] := found_writers[n];
      end loop;
    end if;
    -- The server's clock may have stepped back over midnight after a claim on what is tomorrow again.
    if clock + interval {{clock_step_tolerance}} >= day_end then
      execute {{batch_look}} into found_places, found_ats, found_writers
      using ids, sinces, null::int[], day_end, day_end + interval '24 hours', msg_consumer;
      for n in 1..coalesce(cardinality(found_places), 0) loop
        held_ats[found_places[n]] := found_ats[n];
        writers[found_places[n]] := found_writers[n];
      end loop;
    end if;
    -- It has stepped back, nobody knows how far.
    if round > 1 then
      execute {{batch_look}} into found_places, found_ats, found_writers
      using ids, sinces, null::int[], day_end, timestamptz 'infinity', msg_consumer;
      for n in 1..coalesce(cardinality(found_places), 0) loop
        held_ats[found_places[n]] := found_ats[n];
        writers[found_places[n]] := found_writers[n];
      end loop;
    end if;

    -- Bounded: a row that stands in the way and is gone again was taken out by a forget.
    for attempt in 1..3 loop
      with claimed as (
        insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
        select fresh.id, fresh.topic, clock{{consumer_argument}}
        from unnest(ids, subjects, held_ats, told) as fresh (id, topic, held_at, told)
        where fresh.held_at is null and fresh.told is null
        on conflict do nothing
        returning message_id, tableoid
      )
      -- No distinct here: for it a server since 16 sorts the rows, and takes their order away where the sort spills.
      select array_agg(claimed.message_id), array_agg(claimed.tableoid)
      into taken, holders
      from claimed;
      for holder in select distinct held.leaf from unnest(holders) as held (leaf) loop
        {{key_check}}
      end loop;
      if cardinality(taken) = items then
        -- The usual case: all are fresh, and none is there twice.
        all_fresh_at := clock;
        return;
      end if;
      -- They come back in the order in which they went in.
      next_taken := 1;
      for n in 1..wanted loop
        if ids[n] = taken[next_taken] and held_ats[n] is null and told[n] is null then
          told[n] := 'fresh';
          next_taken := next_taken + 1;
        end if;
      end loop;
      found_places := array(
        select rest.place::int
        from unnest(held_ats, told) with ordinality as rest (held_at, told, place)
        where rest.held_at is null and rest.told is null
      );
      exit when cardinality(found_places) = 0;
      execute {{batch_look}} into found_places, found_ats, found_writers
      using ids, null::timestamptz[], found_places, day_start, day_end, msg_consumer;
      for n in 1..coalesce(cardinality(found_places), 0) loop
        held_ats[found_places[n]] := found_ats[n];
        writers[found_places[n]] := found_writers[n];
      end loop;
      if 'fresh' = any (told) then
        -- The day has taken rows, so it is not sealed, and will not be while our transaction lasts.
        continue;
      end if;
      execute {{open_since}} into since;
      if since > clock then
        clock := since;
        continue anew;
      end if;
    end loop;
    exit;
  end loop;

  -- Thrice in the way and not of today: see the inner claim.
  found_places := array(
    select rest.place::int
    from unnest(held_ats, told) with ordinality as rest (held_at, told, place)
    where rest.held_at is null and rest.told is null
  );
  if cardinality(found_places) > 0 then
    execute {{batch_look}} into found_places, found_ats, found_writers
    using ids, null::timestamptz[], found_places, timestamptz '-infinity', day_end + interval '48 hours', msg_consumer;
    for n in 1..coalesce(cardinality(found_places), 0) loop
      held_ats[found_places[n]] := found_ats[n];
      writers[found_places[n]] := found_writers[n];
    end loop;
  end if;

  for n in 1..wanted loop
    if told[n] is null then
      first_at := held_ats[n];
      if first_at is null then
        {{forgotten_again_of_place}}
      end if;
      writer := writers[n];
      {{outcome_of_row}}
      told[n] := outcome;
    else
      held_ats[n] := clock;
    end if;
  end loop;
  outcomes := array_fill('invalid'::text, array[items]);
  firsts := array_fill(null::timestamptz, array[items]);
  for item in
    select
      keyed.place, dense_rank() over (order by keyed.key, keyed.id)::int as slot,
      row_number() over (partition by keyed.key, keyed.id order by keyed.place) as nth
    from (
      select {{given_key}} as key, given.id, given.place::int
      from unnest(message_ids) with ordinality as given (id, place)
      where given.id <> '00000000-0000-0000-0000-000000000000'
    ) as keyed
  loop
    outcomes[item.place] := case when item.nth > 1 and told[item.slot] = 'fresh' then 'repeated' else told[item.slot] end;
    firsts[item.place] := held_ats[item.slot];
  end loop;
end
{{quote}}
