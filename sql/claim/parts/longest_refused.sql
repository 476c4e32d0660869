-- A negative bound is a mistake of the caller, and "0 to not wait" must not be guessed from it.
  if longest_ms < 0 then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'wait must not be negative, it is ' || longest,
      hint = 'Use interval ''0'' to not wait at all, or null to wait without bound.';
  end if;
