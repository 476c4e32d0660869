-- The days that the message's own time leaves to be looked at, and the insert.
  day_start := date_trunc('day', clock, 'UTC');
  created := least($3, case
    when get_byte(uuid_send($1), 6) >> 4 = 7 and get_byte(uuid_send($1), 8) >> 6 = 2 then
      timestamptz 'epoch' + ('x' || encode(substr(uuid_send($1), 1, 6), 'hex'))::bit(48)::bigint * interval '1 millisecond'
  end);
  -- Later in the day, tomorrow has to be looked at as well.
  if {{fast_since}} >= day_start - interval {{tolerance}}
    and clock + interval {{clock_step_tolerance}} < day_start + interval '24 hours'
  then
    {{fast_insert_tolerance}}
  {{fast_rest}}
  end if;
