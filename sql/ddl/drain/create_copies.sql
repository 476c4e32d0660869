-- inboxd: drain, table for copies
create table {{copies}} (
  like {{inbox}} including defaults including constraints including generated including storage including compression
) partition by range ({{column}})
