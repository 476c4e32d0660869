-- The row is of these hashes and of this one, covers all days from the claim's bound on, and does not hold the id's fingerprint.
looked.lock_key = {{seed}} and looked.hash_from = {{key}} & looked.mask and looked.covered_from <= {{since}}
              and position(int4send(({{key}} << 32 >> 32)::int) in looked.fingerprints) = 0
