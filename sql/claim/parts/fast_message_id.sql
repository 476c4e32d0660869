-- A fresh claim, in as few expressions as can be: each costs about 1 us in every transaction, because plpgsql makes its
  -- expressions ready again in each. What does not come out fresh here is for the inner claim to tell, from the beginning.
  clock := clock_timestamp();
  created := timestamptz 'epoch'
    + ('x' || encode(substr(uuid_send($1), 1, 6), 'hex'))::bit(48)::bigint * interval '1 millisecond';
  if {{consumer_named}} and get_byte(uuid_send($1), 6) >> 4 = 7 and get_byte(uuid_send($1), 8) >> 6 = 2
    and created >= {{oldest}} and created < date_trunc('day', clock, 'UTC') + interval {{horizon}}
  then
    -- Bounded: a row that stands in the way and is gone again was taken out by a forget.
    loop
      insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
      values ($1, $2, clock{{consumer_of_call}})
      on conflict (message_id{{consumer_column}}) do nothing;
      if found then
        {{when_fresh}}
      end if;
      -- Not for the inner claim, which would judge the age anew: this one may have waited over midnight, and what would now
      -- be too old is a duplicate.
      execute {{match}} into first_at, writer using $1, $4;
      if first_at is not null then
        {{when_held}}
      end if;
      attempt := attempt + 1;
      exit when attempt > 3;
    end loop;
  end if;
