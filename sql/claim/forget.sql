-- inboxd: forget
--
-- Takes one id out of the journal so that an operator can replay its message. Refused while the message is in flight, and
-- where a publication would carry the delete to a subscriber that cannot apply it.
create or replace function {{function}}(message_id uuid, consumer text default null, reason text default null)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as {{quote}}
declare
  id uuid := message_id;
  msg_consumer text := consumer;
  taken bigint;
  in_flight boolean := false;
  publication text;
begin
  {{consumer_check}}
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using
      errcode = 'IX004',
      message = 'a forget on inbox ' || {{inbox_literal}} || ' needs a READ COMMITTED transaction, this one is '
        || upper(current_setting('transaction_isolation')),
      hint = 'Begin the transaction with ISOLATION LEVEL READ COMMITTED.';
  end if;
  {{publication_check}}
  {{in_flight_check}}
  if in_flight then
    raise exception using
      errcode = 'IX005',
      message = 'message ' || id || ' is in flight in inbox ' || {{inbox_literal}},
      hint = 'Forget it again once the transaction that claims it has ended.';
  end if;
  delete from {{inbox}} as held where held.message_id = id{{consumer_equals}};
  get diagnostics taken = row_count;
  insert into inboxd.audit (actor, action, inbox_id, detail)
  values (
    session_user, 'forget', {{inbox_id}},
    jsonb_build_object('message_id', id, 'consumer', msg_consumer, 'reason', reason, 'rows', taken)
  );
  return taken > 0;
end
{{quote}}
