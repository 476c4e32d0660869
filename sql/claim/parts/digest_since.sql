-- What the digest rules out need not be looked for: among the days that it covers is no row of an id whose fingerprint it does
      -- not hold. Each of its rows says itself what it covers, so one that is older than was thought rules out less, and
      -- nothing wrong. Today's slot comes first, then yesterday's: that of today is built some time after midnight.
      if since < day_start then
        case (today - date '2000-01-01') % 3
          when 0 then
            {{digest_0}}
            if since < day_start then
              {{digest_2}}
            end if;
          when 1 then
            {{digest_1}}
            if since < day_start then
              {{digest_0}}
            end if;
          else
            {{digest_2}}
            if since < day_start then
              {{digest_1}}
            end if;
        end case;
        {{digest_remember}}
      end if;
