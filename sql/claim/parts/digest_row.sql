-- The row that the hash of an id belongs to.
select slot.lock_key, slot.covered_from, slot.covered_to, slot.fingerprints
              from {{slot}} as slot
              where slot.hash_from <= {{key}}
              order by slot.hash_from desc
              limit 1
