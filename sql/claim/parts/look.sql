-- Looks for a message in the days from {{from}} to {{to}}, relative to today.
      -- 'now' is read when the statement is analysed, not when it runs, so the days are constants of its plan. It is
      -- analysed again after each change of the inbox's partitions, hence about once a day; `planned` says for which day it
      -- was, and what was planned on another day is not believed. Of the two copies, one is for even and one for odd days:
      -- the first claim of a day then meets a copy that is out of date since yesterday's partition came, and that renews
      -- itself, and not the one that was in use until midnight.
      if today - date '2000-01-01' & 1 = 0 then
        {{statement}}
      else
        {{statement}}
      end if;
