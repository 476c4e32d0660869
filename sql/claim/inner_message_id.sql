-- inboxd: claim, inner, message_id routing
--
-- One insert through the parent: the id itself chooses the partition, and the parent's key is the guard. Exact in any
-- isolation level; under REPEATABLE READ and SERIALIZABLE a twin that committed later raises 40001, which is retried as a unit.
--
-- What stands in the way is read by EXECUTE, which plans for this id and so locks its day only. As a statement of the
-- body it would be planned for any id once a session, at the sixth duplicate: that plan locks every partition, and waited
-- 1.7 s behind a change of owner of one five days ahead.
create or replace function {{function}}(
  id uuid, msg_topic text, msg_created_at timestamptz, msg_consumer text,
  out outcome text, out first_at timestamptz
)
language plpgsql volatile
as {{quote}}
declare
  clock timestamptz := clock_timestamp();
  created timestamptz;
  bytes bytea := uuid_send(id);
  writer text;
  inserted bigint := 0;
  reference bigint;
  writer_id bigint;
begin
  if id is null or get_byte(bytes, 6) >> 4 <> 7 or get_byte(bytes, 8) >> 6 <> 2 then
    outcome := 'invalid';
    return;
  end if;
  {{consumer_check}}
  created := timestamptz 'epoch'
    + ('x' || encode(substr(bytes, 1, 6), 'hex'))::bit(48)::bigint * interval '1 millisecond';
  if created < {{oldest}} then
    outcome := 'too_old';
    return;
  end if;
  if created >= date_trunc('day', clock, 'UTC') + interval {{horizon}} then
    outcome := 'too_new';
    return;
  end if;

  -- Bounded: a row that stands in the way and is gone again was taken out by a forget.
  for attempt in 1..3 loop
    insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
    values (id, msg_topic, clock{{consumer_argument}})
    on conflict (message_id{{consumer_column}}) do nothing;
    get diagnostics inserted = row_count;
    if inserted = 1 then
      outcome := 'fresh';
      first_at := clock;
      return;
    end if;
    execute {{match}} into first_at, writer using id, msg_consumer;
    exit when first_at is not null;
  end loop;
  if first_at is null then
    {{forgotten_again_of_id}}
  end if;

  {{outcome_of_row}}
end
{{quote}}
