-- inboxd: create partition, table
create table {{partition}} (
  like {{inbox}} including defaults including constraints including generated including storage including compression
) with ({{storage}}){{tablespace}}
