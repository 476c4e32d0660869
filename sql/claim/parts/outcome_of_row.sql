-- A row that we can see and whose writer is still in progress is our own: repeated. Any other is committed: duplicate.
  -- xmin has 32 bits; the epoch is the one that puts it within 2^31 of the newest transaction id. Only a row
  -- of this transaction's time is worth the question, and older ones could be frozen beyond that distance. That time
  -- begins with the transaction, or with the clock now where it has stepped back meanwhile: a row of our own taken for a
  -- duplicate would be acked before the commit.
  outcome := 'duplicate';
  if first_at > least(now(), clock) - interval '24 hours' then
    reference := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    writer_id := (reference >> 32 << 32) + writer::bigint;
    if writer_id > reference + 2147483648 then
      writer_id := writer_id - 4294967296;
    elsif writer_id < reference - 2147483648 then
      writer_id := writer_id + 4294967296;
    end if;
    if pg_xact_status(writer_id::text::xid8) = 'in progress' then
      outcome := 'repeated';
    end if;
  end if;
