-- inboxd: set the owner of a claim function
alter function {{function}} owner to {{role}}
