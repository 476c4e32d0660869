-- inboxd: commit
--
-- Two statements, and one round trip. The first fails in an aborted transaction, and by a division by zero in any other than the
-- claim's: the server then leaves out the second. A transaction is chained to it for the driver, which counts one that is to end,
-- and sends its ROLLBACK along with the question by which its pool takes the connection back.
select 1 / case pg_current_xact_id_if_assigned() when {{transaction_id}} then 1 else 0 end as is_of_the_claim;
commit and chain
