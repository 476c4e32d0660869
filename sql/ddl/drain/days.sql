-- inboxd: drain, the days that a default partition holds rows of
select {{day}} as day
from only {{default}} as held
where {{kept}}
group by 1
order by 1
