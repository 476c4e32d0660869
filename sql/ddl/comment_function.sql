-- inboxd: comment on a claim function
comment on function {{function}} is {{text}}
