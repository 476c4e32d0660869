-- inboxd: prune replicas that are long gone
delete from inboxd.replicas as replica
where replica.alive_until < pg_catalog.clock_timestamp() - interval '7 days'
