-- inboxd: try_claim
create or replace function {{function}}(
  message_id uuid, topic text, created_at timestamptz, consumer text, wait interval
)
returns table (outcome text, processed_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as {{quote}}
#variable_conflict use_column
declare
  claimed record;
  clock timestamptz;
  day_start timestamptz;
  created timestamptz;
  holder oid;
  is_keyed boolean;
  remembered text;
  first_at timestamptz;
  writer text;
  reference bigint;
  writer_id bigint;
  attempt int := 1;
begin
  if wait is null then
    {{fast_outcome}}
    claimed := {{inner}}($1, $2, $3, $4);
  else
    claimed := {{bounded}}($1, $2, $3, $4, wait);
  end if;
  outcome := claimed.outcome;
  processed_at := claimed.first_at;
  return next;
end
{{quote}}
