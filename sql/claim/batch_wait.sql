-- inboxd: claim batch, bounded wait
--
-- One exception block, hence one subtransaction, for as many claims as go through: with one for each claim a batch of
-- 1,000 made 1,000, and above 64 a transaction every snapshot of every session overflows. A claim that does not get its
-- lock in time takes the block with it; those in front of it are then made again in a block that ends before it, it is in
-- flight, and the rest follow in the next block. The order of the locks stays that of the input, so this cannot deadlock.
--
-- First all of them are tried at once, set-based, with hardly a wait: in nearly every batch nothing is in flight. What is
-- claimed one by one then is claimed in the order of the locks all the same.
--
-- `longest` bounds the call, not each claim: 40 ids in flight once waited 40 times as long. When it is spent, what is free
-- is still claimed. lock_timeout stands in the SET clause so that it never leaks, as in the single claim.
create or replace function {{function}}(
  message_ids uuid[], topics text[], created_ats timestamptz[], msg_consumer text, longest interval,
  out all_fresh_at timestamptz, out outcomes text[], out firsts timestamptz[]
)
language plpgsql volatile
set lock_timeout = 0
as {{quote}}
declare
  began timestamptz := clock_timestamp();
  longest_ms numeric := extract(epoch from longest) * 1000;
  left_ms numeric;
  items int := cardinality(message_ids);
  ids uuid[];
  subjects text[];
  createds timestamptz[];
  places int[];
  told text[];
  told_ats timestamptz[];
  head int := 1;
  tail int := items;
  place int;
  late int;
  claimed record;
begin
{{longest_refused}}
  begin
    perform set_config('lock_timeout', least(greatest(ceil(longest_ms), 1), 20)::text, true);
    claimed := {{batch_inner}}(message_ids, topics, created_ats, msg_consumer);
    all_fresh_at := claimed.all_fresh_at;
    outcomes := claimed.outcomes;
    firsts := claimed.firsts;
    return;
  exception when lock_not_available then
    null;
  end;

  select array_agg(sorted.id), array_agg(sorted.topic), array_agg(sorted.created), array_agg(sorted.place)
  into ids, subjects, createds, places
  from (
    select given.id, given.topic, given.created, given.place::int
    from unnest(message_ids, topics, created_ats) with ordinality as given (id, topic, created, place)
    order by {{given_key}}, given.id, given.place
  ) as sorted;
  while head <= items loop
    late := null;
    begin
      for n in head..tail loop
        place := n;
        if ids[n] = ids[n - 1] then
          told[n] := case told[n - 1] when 'fresh' then 'repeated' else told[n - 1] end;
          told_ats[n] := told_ats[n - 1];
          continue;
        end if;
        -- A clock that steps back must not lengthen the wait.
        left_ms := least(longest_ms, longest_ms - extract(epoch from clock_timestamp() - began) * 1000);
        perform set_config('lock_timeout', least(greatest(ceil(left_ms), 1), 2147483647)::text, true);
        claimed := {{inner}}(ids[n], subjects[n], createds[n], msg_consumer);
        told[n] := claimed.outcome;
        told_ats[n] := claimed.first_at;
      end loop;
    exception when lock_not_available then
      late := place;
    end;
    if late is not null then
      tail := late - 1;
    else
      -- What ends the block early is the one that was late.
      head := tail + 1;
      if head <= items then
        told[head] := 'in_flight';
        told_ats[head] := null;
        head := head + 1;
      end if;
      tail := items;
    end if;
  end loop;
  for n in 1..items loop
    outcomes[places[n]] := told[n];
    firsts[places[n]] := told_ats[n];
  end loop;
end
{{quote}}
