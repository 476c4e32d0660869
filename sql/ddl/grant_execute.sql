-- inboxd: grant execute on a claim function
grant execute on function {{function}} to {{role}}
