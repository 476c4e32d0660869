-- Bounded above: each round, what stood in the way was gone when it was looked at.
  raise exception using
    errcode = 'serialization_failure',
    message = 'message ' || {{which}} || ' was claimed and forgotten again and again while this claim ran',
    hint = 'Roll back and retry the whole unit of work.';
