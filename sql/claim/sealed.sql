-- inboxd: sealed
--
-- The trigger of a sealed day: it takes no row any more. To make the trigger is to seal: it waits for every transaction that
-- has written into the day, and whoever comes later meets it.
--
-- A claim holds the advisory lock of its id, and sees that nothing was inserted; it then begins anew on a day that is open.
-- Any other insert must not vanish. pg_locks is slow, but only a clock that stepped back leads a claim here.
create or replace function {{function}}()
returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as {{quote}}
declare
  id uuid := new.message_id;
  {{consumer_of_row}}
  key bigint := {{lock_key}};
begin
  perform
  from pg_locks as held
  where held.locktype = 'advisory' and held.granted and held.pid = pg_backend_pid() and held.objsubid = 1
    and held.database = (select own.oid from pg_database as own where own.datname = current_database())
    and held.classid = (key >> 32 & 4294967295)::oid and held.objid = (key & 4294967295)::oid;
  if found then
    return null;
  end if;
  raise exception using
    errcode = 'object_not_in_prerequisite_state',
    message = 'partition ' || tg_relid::regclass::text || ' of inbox ' || {{inbox_literal}} || ' is sealed: '
      || tg_argv[0] || ' is over, and claims rely on its taking no row any more',
    hint = 'Claim the message instead, or let the day go. A sealed day stays as it is.';
end
{{quote}}
