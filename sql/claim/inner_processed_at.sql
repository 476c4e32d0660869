-- inboxd: claim, inner, processed_at routing
--
-- Exact because of its order: (1) the advisory lock on (inbox, consumer, id) keeps every other claim of this id out until
-- our transaction ends; (2) the clock is read only then, so a claim that waited over midnight belongs to the new day;
-- (3) the look-back and the insert are later statements, so that READ COMMITTED gives each a snapshot taken after the
-- lock. In one statement, or under an older snapshot (REPEATABLE READ), the twin's row would be invisible.
--
-- The look-back goes through the parent with its values as parameters of EXECUTE, which plans it each time and so prunes:
-- it locks the parent, and of the days only those in range. A cached generic plan would lock every partition, also those ahead.
-- The insert names its leaf and the conflict target: if the leaf has lost its key it fails with 42P10 where an insert
-- through the parent would double in silence. The leaf must be a partition of this very inbox, or it does not count: in a
-- schema where others may create tables, a table of that name could be anybody's.
create or replace function {{function}}(
  id uuid, msg_topic text, msg_created_at timestamptz, msg_consumer text,
  out outcome text, out first_at timestamptz
)
language plpgsql volatile
as {{quote}}
declare
  clock timestamptz;
  day_start timestamptz;
  day_end timestamptz;
  oldest timestamptz;
  since timestamptz;
  created timestamptz;
  bytes bytea;
  leaf text;
  holder oid;
  writer text;
  inserted bigint := 0;
  reference bigint;
  writer_id bigint;
begin
  if id is null or id = '00000000-0000-0000-0000-000000000000' then
    outcome := 'invalid';
    return;
  end if;
  {{consumer_check}}
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using
      errcode = 'IX004',
      message = 'a claim on inbox ' || {{inbox_literal}} || ' needs a READ COMMITTED transaction, this one is '
        || upper(current_setting('transaction_isolation')),
      hint = 'Begin the transaction with ISOLATION LEVEL READ COMMITTED, or use an inbox with message_id routing.';
  end if;
  if row_security_active({{inbox_literal}}::regclass::oid) then
    -- A policy would hide rows from the look-back, and the insert by leaf name would not notice: a double in silence.
    raise exception using
      errcode = 'insufficient_privilege',
      message = 'row security of inbox ' || {{inbox_literal}} || ' applies to ' || current_user
        || ', whose claims would not see every row',
      hint = 'Do not force row security on the inbox, and let its functions belong to the owner of the table.';
  end if;

  perform pg_advisory_xact_lock({{lock_key}});

  clock := clock_timestamp();
  day_start := date_trunc('day', clock, 'UTC');
  day_end := day_start + interval '24 hours';

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

  if since < day_start then
    execute {{look_back}} into first_at, writer using id, since, day_start, msg_consumer;
  end if;
  -- The server's clock may have stepped back over midnight after a claim on what is tomorrow again.
  if first_at is null and clock + interval {{clock_step_tolerance}} >= day_end then
    execute {{look_back}} into first_at, writer using id, day_end, day_end + interval '24 hours', msg_consumer;
  end if;

  if first_at is null then
    leaf := {{leaf_prefix}} || to_char(day_start at time zone 'UTC', 'YYYY_MM_DD') || '"';
    if pg_partition_root(to_regclass(leaf)) is distinct from {{inbox_literal}}::regclass then
      leaf := null;
    end if;
    -- Bounded: a row that stands in the way and is gone again was taken out by a forget.
    for attempt in 1..3 loop
      if leaf is not null then
        execute 'insert into ' || leaf || {{insert_values}} || ' ({{on_key}}) do nothing'
          using id, msg_topic, clock, msg_consumer;
        get diagnostics inserted = row_count;
      else
        -- No partition has the day's name. One with another name may hold the day; if none does, this raises 23514.
        execute 'insert into ' || {{inbox_literal}} || {{insert_values}} || ' do nothing returning tableoid'
          into holder using id, msg_topic, clock, msg_consumer;
        inserted := case when holder is null then 0 else 1 end;
        if holder is not null and not exists (
          select
          from pg_index as key
          where key.indrelid = holder and key.indisunique and key.indisvalid and key.indimmediate
            and key.indpred is null and key.indexprs is null
            and (
              select array_agg(attribute.attname::text order by attribute.attname)
              from pg_attribute as attribute
              where attribute.attrelid = holder and attribute.attnum = any ((key.indkey::int2[])[0:key.indnkeyatts - 1])
            ) = {{key_columns}}
        ) then
          raise exception using
            errcode = 'invalid_column_reference',
            message = 'partition ' || holder::regclass::text || ' of inbox ' || {{inbox_literal}} || ' has lost its key',
            hint = 'Do not ack. Look for duplicates, then create a unique index concurrently on the key.';
        end if;
      end if;
      if inserted = 1 then
        outcome := 'fresh';
        first_at := clock;
        return;
      end if;
      execute case when leaf is null then {{match}} else 'select processed_at, xmin::text from ' || leaf || {{leaf_match}} end
        into first_at, writer using id, msg_consumer;
      exit when first_at is not null;
    end loop;
    if first_at is null then
      raise exception using
        errcode = 'serialization_failure',
        message = 'message ' || id || ' was claimed and forgotten again and again while this claim ran',
        hint = 'Roll back and retry the whole unit of work.';
    end if;
  end if;

  {{outcome_of_row}}
end
{{quote}}
