-- As in the single claim, for the earliest bound of all messages.
if since = day_start - interval {{tolerance}} then
      {{batch_look_tolerance}}
    elsif since = day_start - interval {{tolerance_and_day}} then
      {{batch_look_tolerance_and_day}}
    elsif since <= {{whole}} then
      {{batch_look_whole}}
    end if;
