-- inboxd: seal partition
create or replace trigger inboxd_sealed before insert on {{relation}} for each row execute function {{function}}({{day}})
