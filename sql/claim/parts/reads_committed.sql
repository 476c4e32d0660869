-- An older snapshot, or a policy that hides rows, would let a duplicate through.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using
      errcode = 'IX004',
      message = 'a claim on inbox ' || {{inbox_literal}} || ' needs a READ COMMITTED transaction, this one is '
        || upper(current_setting('transaction_isolation')),
      hint = 'Begin the transaction with ISOLATION LEVEL READ COMMITTED, or use an inbox with message_id routing.';
  end if;
  if row_security_active({{inbox_literal}}::regclass::oid) then
    -- A policy would hide rows from the look-back, and the insert by leaf name would not notice: a double in silence.
    raise exception using
      errcode = 'insufficient_privilege',
      message = 'row security of inbox ' || {{inbox_literal}} || ' applies to ' || current_user
        || ', whose claims would not see every row',
      hint = 'Do not force row security on the inbox, and let its functions belong to the owner of the table.';
  end if;
