-- inboxd: try_claim
create or replace function {{function}}(
  message_id uuid, topic text, created_at timestamptz, consumer text, wait interval
)
returns table (outcome text, processed_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as {{quote}}
declare
  claimed record;
begin
  if wait is null then
    claimed := {{inner}}(message_id, topic, created_at, consumer);
  else
    claimed := {{bounded}}(message_id, topic, created_at, consumer, wait);
  end if;
  outcome := claimed.outcome;
  processed_at := claimed.first_at;
  return next;
end
{{quote}}
