#!/bin/sh
# Runs once, when the database is made: the roles of deploy/roles.sql, and the service's password.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --file /deploy/roles.sql
psql --set ON_ERROR_STOP=1 --set "password=$INBOXD_PASSWORD" --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
alter role inboxd_service password :'password';
SQL
