-- The same key in any order of its columns; the double quotes are there under quote_all_identifiers.
          key.indnkeyatts = 2
            and pg_get_indexdef(key.indexrelid, 1, false) <> pg_get_indexdef(key.indexrelid, 2, false)
            and pg_get_indexdef(key.indexrelid, 1, false) in ('message_id', 'consumer', '"message_id"', '"consumer"')
            and pg_get_indexdef(key.indexrelid, 2, false) in ('message_id', 'consumer', '"message_id"', '"consumer"')
