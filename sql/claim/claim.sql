-- inboxd: claim
create or replace function {{function}}(
  message_id uuid, topic text, created_at timestamptz default null, consumer text default null
)
returns boolean
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
  {{fast_true}}
  claimed := {{inner}}($1, $2, $3, $4);
  case claimed.outcome
    when 'fresh' then
      return true;
    when 'duplicate', 'repeated' then
      return false;
    when 'too_old' then
      raise exception using
        errcode = 'IX001',
        message = 'message ' || message_id || ' is older than the retention of inbox ' || {{inbox_literal}},
        hint = 'It can no longer be told whether it was processed. Dead-letter it, or raise the retention.';
    when 'too_new' then
      raise exception using
        errcode = 'IX002',
        message = 'message ' || message_id || ' was created later than the days that inbox ' || {{inbox_literal}} || ' keeps ahead',
        hint = 'The clock of its producer is wrong. Dead-letter it.';
    when 'invalid' then
      raise exception using
        errcode = 'IX003',
        message = 'message id ' || coalesce(message_id::text, 'NULL') || ' is not valid for inbox ' || {{inbox_literal}},
        hint = {{invalid_hint}};
  end case;
end
{{quote}}
