-- All days that are remembered, each by itself.
  elsif {{fast_since}} <= {{whole}} and clock + interval {{clock_step_tolerance}} < day_start + interval '24 hours' then
    {{fast_insert_whole}}
