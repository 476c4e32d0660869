-- inboxd: drain, detach the default partition
--
-- The only detach that is not concurrent, which PostgreSQL refuses for a default partition: under a short lock timeout, on
-- request of the configuration only, and once for an inbox.
alter table {{inbox}} detach partition {{partition}}
