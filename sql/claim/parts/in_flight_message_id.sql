-- The lock is between forgets only. A claim takes none here, and its uncommitted row cannot be seen; but a second insert of the id would have to wait for
  -- it. So that is tried, and taken back whatever comes of it: row and lock_timeout end with the subtransaction. Not in time
  -- means in flight, anything else that it is not there or committed. 20 ms: no more is needed to see that one has to wait,
  -- and less could take a busy server for a twin.
  in_flight := not pg_try_advisory_xact_lock({{lock_key}});
  if not in_flight and id is not null then
    -- First of all the locks on the tables, which is all that this takes: one that cannot be had is no twin.
    delete from {{inbox}} as held where held.message_id = id and pg_backend_pid() = 0;
    begin
      perform set_config('lock_timeout', '20ms', true);
      insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
      values (id, '', clock_timestamp(){{consumer_argument}})
      on conflict do nothing;
      raise exception using errcode = 'IX000';
    exception
      when lock_not_available then
        in_flight := true;
      -- No partition takes the id, so none has it.
      when sqlstate 'IX000' or check_violation then
        null;
    end;
  end if;
