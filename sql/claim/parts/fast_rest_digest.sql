-- All others, by the digest.
    else
      {{fast_digest}}
