-- inboxd: drain, copy rows
insert into {{copies}} ({{columns}})
select {{columns}}
from only {{default}} as held
where ({{kept}}) and {{which}}
on conflict do nothing
