-- A leaf without its key takes any id any number of times. The primary key is asked for first, as the server's own cache of
        -- the leaf knows it (valid, immediate, on all rows): a tenth of a look into the catalog, which also locks two
        -- relations more until the transaction ends. It is the replica identity of a leaf that was given no other.
        if ({{is_identity}}) is not true then
          perform
          from pg_index as key
          where key.indrelid = holder and key.indisunique and key.indisvalid and key.indimmediate
            and key.indpred is null and key.indexprs is null and {{is_key}};
          if not found then
            raise exception using
              errcode = 'invalid_column_reference',
              message = 'partition ' || holder::regclass::text || ' of inbox ' || {{inbox_literal}} || ' has lost its key',
              hint = 'Do not ack. Look for duplicates, then create a unique index concurrently on the key.';
          end if;
        {{remember}}end if;
