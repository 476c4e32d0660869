-- For the bounds that nearly every claim has; any other is planned for itself.
if since = day_start - interval {{tolerance}} then
      {{look_tolerance}}
    elsif since = day_start - interval {{tolerance_and_day}} then
      {{look_tolerance_and_day}}
    elsif since <= {{whole}} then
      {{look_whole}}
    end if;
