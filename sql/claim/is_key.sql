key.indnkeyatts = 1
            and pg_get_indexdef(key.indexrelid, 1, false) in ('message_id', '"message_id"') -- quote_all_identifiers
