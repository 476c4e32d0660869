-- inboxd: adopt, create the parent as the table was
create table {{inbox}} (
  like {{adopted}} including defaults including constraints including generated including storage including compression including comments
) partition by range (processed_at){{tablespace}}
