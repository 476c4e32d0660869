-- inboxd: repair storage parameters
alter table {{relation}} set ({{storage}})
