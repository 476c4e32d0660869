-- Of an id that says nothing of its time, the digest knows.
  if $3 is null and get_byte(uuid_send($1), 6) >> 4 <> 7 then
    if ((clock at time zone 'UTC')::date - date '2000-01-01') % 3 = 0 then
      {{fast_digest_0}}
    elsif ((clock at time zone 'UTC')::date - date '2000-01-01') % 3 = 1 then
      {{fast_digest_1}}
    else
      {{fast_digest_2}}
    end if;
  else
    {{fast_look_back}}
  end if;
