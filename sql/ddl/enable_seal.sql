-- inboxd: seal partition, also against what a subscription brings
alter table {{relation}} enable always trigger inboxd_sealed
