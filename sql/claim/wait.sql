-- inboxd: claim, bounded wait
--
-- lock_timeout bounds each wait inside. It stands in this function's own SET clause, so that the value set below ends with
-- the call and never leaks into the caller's transaction. The exception block costs a subtransaction: only bounded claims pay it.
create or replace function {{function}}(
  id uuid, msg_topic text, msg_created_at timestamptz, msg_consumer text, longest interval,
  out outcome text, out first_at timestamptz
)
language plpgsql volatile
set lock_timeout = 0
as {{quote}}
declare
  claimed record;
  longest_ms numeric := extract(epoch from longest) * 1000;
begin
{{longest_refused}}
  -- 0 would mean "no limit"; the upper end is the largest value PostgreSQL takes.
  perform set_config('lock_timeout', least(greatest(ceil(longest_ms), 1), 2147483647)::text, true);
  begin
    claimed := {{inner}}(id, msg_topic, msg_created_at, msg_consumer);
    outcome := claimed.outcome;
    first_at := claimed.first_at;
  exception when lock_not_available then
    outcome := 'in_flight';
    first_at := null;
  end;
end
{{quote}}
