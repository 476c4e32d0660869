-- inboxd: revoke execute on a claim function from everybody
revoke all on function {{function}} from public
