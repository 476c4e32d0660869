-- One slot, one row of it.
select greatest(since, looked.covered_to) into since
            from (values (1)) as always
            left join (
              select slot.lock_key, slot.covered_from, slot.covered_to, slot.fingerprints
              from {{slot}} as slot
              where slot.hash_from <= {{lock_key}}
              order by slot.hash_from desc
              limit 1
            ) as looked
              on looked.lock_key = {{seed}} and looked.covered_from <= since
              and position(int4send(({{lock_key}} << 32 >> 32)::int) in looked.fingerprints) = 0;
