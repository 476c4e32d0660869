-- Whether today's slot of the digest rules out all of the batch: once it is built, that holds for nearly every one.
      case (today - date '2000-01-01') % 3
        when 0 then
          {{digest_0}}
        when 1 then
          {{digest_1}}
        else
          {{digest_2}}
      end case;
