-- inboxd: revoke execute on a claim function
revoke all on function {{function}} from {{role}}
