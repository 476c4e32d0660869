-- A claim holds this lock until its transaction ends.
  in_flight := not pg_try_advisory_xact_lock({{lock_key}});
