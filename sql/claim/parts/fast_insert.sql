-- The days from {{from}} to {{to}}: constants of the plan, in two copies, as in the inner claim's looks.
        if (clock at time zone 'UTC')::date - date '2000-01-01' & 1 = 0 then
          {{statement}}
        else
          {{statement}}
        end if;
