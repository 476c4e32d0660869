-- inboxd: drain, take back copies of what was forgotten meanwhile
--
-- A forget leaves its trace in the transaction in which it deletes.
delete from {{copies}} as copied
using (
  select distinct (audit.detail ->> 'message_id')::uuid as message_id
  from inboxd.audit as audit
  where audit.action = 'forget' and audit.inbox_id = {{inbox_id}}::uuid
) as forgotten
where copied.message_id = forgotten.message_id
  and not exists (
    select
    from only {{default}} as held
    where held.message_id = copied.message_id and held.processed_at = copied.processed_at{{and_consumer}}
  )
