-- The roles of a managed inbox, each with no more than it needs. Run it once in the application's database, as a superuser
-- or as the database's owner with createrole, before `inboxd init`. Roles belong to the whole server: where they are there
-- already, leave their `create role` lines out.
--
-- The configuration that goes with it is deploy/inboxd.minimal.toml:
--
--   [[inbox]]
--   table = "public.inbox"
--   owner = "inbox_owner"
--   consumer_roles = ["inbox_consumer"]
--
-- For another schema than public, put its name in place of it. No password stands here, for files are copied: set it with
-- \password inboxd_service in psql, or let the service log in by certificate or by the identity of its machine.

-- The owner of the inbox's table, its partitions and its claim functions, and nobody's login. The functions act with its
-- rights; so it must own nothing else, and a function that is tricked finds nothing beside the inbox.
create role inbox_owner nologin;

-- What `inboxd` connects as, for every command. It makes and removes partitions and gives them to the owner, which takes
-- membership. Ten connections suffice for three replicas and a person.
create role inboxd_service login connection limit 10;
grant inbox_owner to inboxd_service;

-- The right to claim, as a group: applications log in as roles of their own, which are granted it:
-- grant inbox_consumer to orders;
create role inbox_consumer nologin;

-- A table's owner must be able to create where the table stands, and so must whoever makes the table.
-- On PostgreSQL 14 everybody may create in public, a table with tomorrow's partition's name included. Where nothing of yours
-- relies on it: revoke create on schema public from public;
grant usage, create on schema public to inbox_owner, inboxd_service;

-- For the schema "inboxd", in which the service keeps its records. Only the first `inboxd init` needs it: afterwards
-- revoke create on database … from inboxd_service;
-- The database is the one that this runs in; `grant` takes no expression, hence the block.
do $$
begin
  execute format('grant connect, create on database %I to inboxd_service', current_database());
end
$$;

-- To see how old the transactions are that hold the inbox, and who keeps a detach from ending. It shows the service what
-- other sessions run, too: leave it out where that is too much, and that metric stays 0.
grant pg_read_all_stats to inboxd_service;

-- `inboxd init` does the rest: the consumers' `usage` on the schema and `execute` on the claim functions. They get no right
-- on any table: a plain insert would pass the claim's lock by, and double.
