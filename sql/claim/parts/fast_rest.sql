-- All days that are remembered, each by itself.
    elsif since <= {{whole}} then
      {{fast_insert_whole}}
