-- One column, and no second.
          pg_get_indexdef(pg_get_replica_identity_index(holder), 1, false) in ('message_id', '"message_id"')
          and pg_get_indexdef(pg_get_replica_identity_index(holder), 2, false) = ''
