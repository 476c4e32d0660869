-- Two columns in either order, and no third.
          pg_get_indexdef(pg_get_replica_identity_index(holder), 1, false) <> pg_get_indexdef(pg_get_replica_identity_index(holder), 2, false)
          and pg_get_indexdef(pg_get_replica_identity_index(holder), 1, false) in ('message_id', 'consumer', '"message_id"', '"consumer"')
          and pg_get_indexdef(pg_get_replica_identity_index(holder), 2, false) in ('message_id', 'consumer', '"message_id"', '"consumer"')
          and pg_get_indexdef(pg_get_replica_identity_index(holder), 3, false) = ''
