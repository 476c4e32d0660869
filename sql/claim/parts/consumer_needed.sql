-- A null never conflicts, so two claims without a consumer would both be fresh.
  if msg_consumer is null or msg_consumer = '' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'inbox ' || {{inbox_literal}} || ' is shared by many consumers, and the claim names none',
      hint = 'Pass the name of the consumer.';
  end if;
