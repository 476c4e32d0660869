-- inboxd: drop a claim function whose signature has changed
drop function {{function}}
