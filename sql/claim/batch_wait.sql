-- inboxd: claim batch, bounded wait
--
-- One exception block, hence one subtransaction, for as many claims as go through: with one for each claim a batch of
-- 1,000 made 1,000, and above 64 a transaction every snapshot of every session overflows. A claim that does not get its
-- lock in time takes the block with it; those in front of it are then made again in a block that ends before it, it is in
-- flight, and the rest follow in the next block. The order of the locks stays that of the input, so this cannot deadlock.
--
-- `longest` bounds the call, not each claim: 40 ids in flight once waited 40 times as long. When it is spent, what is free
-- is still claimed. lock_timeout stands in the SET clause so that it never leaks, as in the single claim.
create or replace function {{function}}(
  ids uuid[], topics text[], created_ats timestamptz[], msg_consumer text, longest interval,
  out outcomes text[], out firsts timestamptz[]
)
language plpgsql volatile
set lock_timeout = 0
as {{quote}}
declare
  began timestamptz := clock_timestamp();
  longest_ms numeric := extract(epoch from longest) * 1000;
  left_ms numeric;
  items int := cardinality(ids);
  head int := 1;
  tail int := items;
  place int;
  late int;
  claimed record;
begin
{{longest_refused}}
  while head <= items loop
    late := null;
    begin
      for n in head..tail loop
        place := n;
        if ids[n] = ids[n - 1] then
          outcomes[n] := case outcomes[n - 1] when 'fresh' then 'repeated' else outcomes[n - 1] end;
          firsts[n] := firsts[n - 1];
          continue;
        end if;
        -- A clock that steps back must not lengthen the wait.
        left_ms := least(longest_ms, longest_ms - extract(epoch from clock_timestamp() - began) * 1000);
        perform set_config('lock_timeout', least(greatest(ceil(left_ms), 1), 2147483647)::text, true);
        claimed := {{inner}}(ids[n], topics[n], created_ats[n], msg_consumer);
        outcomes[n] := claimed.outcome;
        firsts[n] := claimed.first_at;
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
        outcomes[head] := 'in_flight';
        firsts[head] := null;
        head := head + 1;
      end if;
      tail := items;
    end if;
  end loop;
end
{{quote}}
