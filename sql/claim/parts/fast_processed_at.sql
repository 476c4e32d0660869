-- A fresh claim, in as few expressions as can be: each costs about 1 us in every transaction, because plpgsql makes its
  -- expressions ready again in each. What does not come out fresh here is for the inner claim to tell, from the beginning:
  -- the lock may be taken twice. What is looked at is looked at by the statement that inserts, which is later than the lock.
  -- The clock is read when the lock is held; there is none where this way is not open.
  clock := case
    when $1 is not null and $1 <> '00000000-0000-0000-0000-000000000000' and {{consumer_named}}
      and current_setting('transaction_isolation') in ('read committed', 'read uncommitted')
      and not row_security_active({{inbox_literal}}::regclass::oid)
    then case when pg_advisory_xact_lock({{lock_key_of_call}}) is not null then clock_timestamp() end
  end;
  {{fast_ways}}
  -- A row went in. Its leaf's key is what this session has found it to be, or is looked at.
  if is_keyed then
    {{when_fresh}}
  elsif not is_keyed then
    {{key_check_once}}
    {{when_fresh}}
  end if;
