-- inboxd: who we are
select current_user::text
