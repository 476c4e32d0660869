-- The digest and the insert in one statement: the advisory lock is older than its snapshot.
insert into {{inbox}} (message_id, topic, processed_at{{consumer_column}})
          select $1, $2, clock{{consumer_of_call}}
          from (
            select slot.lock_key, slot.covered_from, slot.covered_to, slot.fingerprints
            from {{slot}} as slot
            where slot.hash_from <= {{lock_key_of_call}}
            order by slot.hash_from desc
            limit 1
          ) as looked
          where looked.lock_key = {{seed}} and looked.covered_from <= since and looked.covered_to >= day_start
            and position(int4send(({{lock_key_of_call}} << 32 >> 32)::int) in looked.fingerprints) = 0
          on conflict do nothing
          returning tableoid into holder;
