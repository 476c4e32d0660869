-- inboxd: store the digest's fingerprints as they are
alter table {{slot}} alter column fingerprints set storage plain
