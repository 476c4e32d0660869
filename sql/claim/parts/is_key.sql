-- The same key in any order of its columns; the double quotes are there under quote_all_identifiers.
          key.indnkeyatts = 1
            and pg_get_indexdef(key.indexrelid, 1, false) in ('message_id', '"message_id"')
