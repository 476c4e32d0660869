-- The row that the hash of an id belongs to. All rows of a build have one mask; the first is there in each. By equality: a
-- look for the greatest below the hash reads half a page of the index, and took three times as long. The limit keeps a
-- batch from being planned as a scan of the whole.
select slot.hash_from, slot.mask, slot.lock_key, slot.covered_from, slot.covered_to, slot.fingerprints
              from {{slot}} as slot
              where slot.hash_from = {{key}} & (
                select first.mask from {{slot}} as first where first.hash_from = (-9223372036854775808)::bigint
              )
              limit 1
