-- What today's slot of the digest rules out is fresh. The rest is for the inner claim.
      case ((clock at time zone 'UTC')::date - date '2000-01-01') % 3
        when 0 then
          {{fast_digest_0}}
        when 1 then
          {{fast_digest_1}}
        else
          {{fast_digest_2}}
      end case;
