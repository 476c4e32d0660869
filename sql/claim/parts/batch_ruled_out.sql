-- What nearly every batch is of once today's slot of the digest is built: nothing in it is older than today.
      case (today - date '2000-01-01') % 3
        when 0 then
          {{digest_0}}
        when 1 then
          {{digest_1}}
        else
          {{digest_2}}
      end case;
