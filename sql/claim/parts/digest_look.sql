-- One slot, one row of it.
select greatest(since, looked.covered_to), looked.mask into since, mask
            from (values (1)) as always
            left join (
              {{row}}
            ) as looked
              on {{rules_out}};
