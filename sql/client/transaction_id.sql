-- inboxd: verify
--
-- The last question before COMMIT. In a transaction that an error has aborted it fails, where COMMIT would answer ROLLBACK
-- and the driver report success. Another id, or none, means that the handler ended the claim's transaction itself.
select pg_current_xact_id_if_assigned()::text as transaction_id
