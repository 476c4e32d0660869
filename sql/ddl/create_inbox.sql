-- inboxd: create inbox
create table {{inbox}} (
  message_id uuid not null,
  topic varchar(255) not null,
  processed_at timestamptz not null default now(){{consumer_definition}}{{key_definition}}
) partition by range ({{column}})
