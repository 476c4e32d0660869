-- A fresh claim, in as few expressions as can be: each costs about 1 us in every transaction, because plpgsql makes its
  -- expressions ready again in each. What does not come out fresh here is for the inner claim to tell, from the beginning:
  -- the lock may be taken twice. Look-back and insert are one statement, which is later than the lock.
  if $1 is not null and $1 <> '00000000-0000-0000-0000-000000000000' and {{consumer_named}}
    and current_setting('transaction_isolation') in ('read committed', 'read uncommitted')
    and not row_security_active({{inbox_literal}}::regclass::oid)
  then
    -- The clock is read when the lock is held.
    clock := case when pg_advisory_xact_lock({{lock_key_of_call}}) is not null then clock_timestamp() end;
    day_start := date_trunc('day', clock, 'UTC');
    created := least($3, case
      when get_byte(uuid_send($1), 6) >> 4 = 7 and get_byte(uuid_send($1), 8) >> 6 = 2 then
        timestamptz 'epoch' + ('x' || encode(substr(uuid_send($1), 1, 6), 'hex'))::bit(48)::bigint * interval '1 millisecond'
    end);
    since := greatest({{oldest}}, date_trunc(
      'day',
      greatest(case when created <= clock + interval {{producer_clock_tolerance}} then created end, timestamptz 'epoch')
        - interval {{producer_clock_tolerance}},
      'UTC'
    ));
    if clock + interval {{clock_step_tolerance}} >= day_start + interval '24 hours' then
      -- Tomorrow has to be looked at as well.
    elsif since = day_start - interval {{tolerance}} then
      {{fast_insert_tolerance}}
    {{fast_rest}}
    end if;
    if holder is not null then
      {{key_check}}
      {{when_fresh}}
    end if;
  end if;
