-- inboxd: claim, inner, processed_at routing
--
-- Exact because of its order: (1) the advisory lock on (inbox, consumer, id) keeps every other claim of this id out until
-- our transaction ends; (2) the clock is read only then, so a claim that waited over midnight belongs to the new day;
-- (3) the look-back and the insert are later statements, so that READ COMMITTED gives each a snapshot taken after the
-- lock. In one statement, or under an older snapshot (REPEATABLE READ), the twin's row would be invisible.
--
-- The look-back is a statement with its days in it as constants, so that it is planned once and its plan holds these days
-- only: see parts/look.sql. By EXECUTE, as it was, planning alone took 58 to 92 us of a claim of 250 (both measured on 15 and 18;
-- 35 to 39 us by the name of one leaf), against 5 to 9 us for the whole look into one day as it is now, and 25 to 45 us
-- for seven days. With the values as parameters a cached plan would hold every partition, also the days ahead, and lock
-- them all. What stands in the way of the insert is read by EXECUTE: a duplicate may cost more, and today's partition
-- grows, so that a plan kept from its first rows could be a scan.
-- The insert goes through the parent, from a cached plan (11 to 20 us; by leaf name, which is another each day and so
-- wants EXECUTE, 50 to 60). A leaf that has lost its key would then double in silence: so the server is asked whether
-- the leaf that took the row has it (a tenth of what a look into pg_index costs), and the claim fails with 42P10 if not.
--
-- A day that is sealed takes no row (see sealed.sql). Only a clock that has stepped back leads a claim there; it begins anew
-- on the day after the last sealed one, which is where the claims are that were made before the step.
create or replace function {{function}}(
  id uuid, msg_topic text, msg_created_at timestamptz, msg_consumer text,
  out outcome text, out first_at timestamptz
)
language plpgsql volatile
as {{quote}}
-- The inbox may have columns of any name beside ours.
#variable_conflict use_variable
declare
  clock timestamptz;
  day_start timestamptz;
  day_end timestamptz;
  today date;
  planned date;
  oldest timestamptz;
  since timestamptz;
  created timestamptz;
  bytes bytea;
  holder oid;
  mask bigint;
  remembered text;
  writer text;
  reference bigint;
  writer_id bigint;
begin
  if id is null or id = '00000000-0000-0000-0000-000000000000' then
    outcome := 'invalid';
    return;
  end if;
  {{consumer_check}}
  {{reads_committed}}
  perform pg_advisory_xact_lock({{lock_key}});

  clock := clock_timestamp();
  -- Bounded: a second round begins where no day is sealed, a third where one was sealed meanwhile.
  <<anew>>
  for round in 1..3 loop
    day_start := date_trunc('day', clock, 'UTC');
    day_end := day_start + interval '24 hours';
    today := (clock at time zone 'UTC')::date;

    -- A message cannot have been claimed before it was created; a UUIDv7 says when that was.
    bytes := uuid_send(id);
    created := msg_created_at;
    if get_byte(bytes, 6) >> 4 = 7 and get_byte(bytes, 8) >> 6 = 2 then
      created := least(created, timestamptz 'epoch'
        + ('x' || encode(substr(bytes, 1, 6), 'hex'))::bit(48)::bigint * interval '1 millisecond');
    end if;
    if created > clock + interval {{producer_clock_tolerance}} then
      created := null;
    end if;
    oldest := {{oldest}};
    -- The epoch stands for an unknown time, and for one so early that the subtraction would leave the range of a timestamp
    -- (22008 for '4714-11-24 BC'): a producer may send any, and no message is older.
    since := greatest(oldest, date_trunc(
      'day', greatest(created, timestamptz 'epoch') - interval {{producer_clock_tolerance}}, 'UTC'
    ));

    {{digest_since}}
    planned := null;
    if since < day_start then
      {{look_back}}
      if planned is distinct from today then
        execute {{look}} into first_at, writer using id, since, day_start, msg_consumer;
      end if;
    end if;
    -- The server's clock may have stepped back over midnight after a claim on what is tomorrow again.
    if first_at is null and clock + interval {{clock_step_tolerance}} >= day_end then
      planned := null;
      {{look_ahead}}
      if planned is distinct from today then
        execute {{look}} into first_at, writer using id, day_end, day_end + interval '24 hours', msg_consumer;
      end if;
    end if;
    -- It has stepped back, nobody knows how far.
    if first_at is null and round > 1 then
      execute {{look}} into first_at, writer using id, day_end, timestamptz 'infinity', msg_consumer;
    end if;

    if first_at is null then
      -- Bounded: a row that stands in the way and is gone again was taken out by a forget.
      for attempt in 1..3 loop
        insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
        values (id, msg_topic, clock{{consumer_argument}})
        on conflict do nothing
        returning tableoid into holder;
        if holder is not null then
          {{key_check}}
          outcome := 'fresh';
          first_at := clock;
          return;
        end if;
        execute {{look}} into first_at, writer using id, day_start, day_end, msg_consumer;
        exit when first_at is not null;
        execute {{open_since}} into since;
        if since > clock then
          clock := since;
          continue anew;
        end if;
      end loop;
      if first_at is null then
        -- Thrice in the way and not of today: a row of another day, in a table that was adopted or is to be, whose one key
        -- spans many days. Two days ahead at most: further ones may be locked by maintenance.
        execute {{look}} into first_at, writer
        using id, timestamptz '-infinity', day_end + interval '48 hours', msg_consumer;
      end if;
    end if;
    exit;
  end loop;
  if first_at is null then
    {{forgotten_again_of_id}}
  end if;

  {{outcome_of_row}}
end
{{quote}}
