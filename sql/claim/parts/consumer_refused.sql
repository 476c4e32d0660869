-- Two consumers on one inbox that is not made for many: the second would silently skip the first one's messages.
  if msg_consumer is not null then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'inbox ' || {{inbox_literal}} || ' is made for one consumer, and the claim names ' || msg_consumer,
      hint = 'Give each consumer an inbox of its own, or create one with consumers = "many".';
  end if;
