-- inboxd: build digest
--
-- A row holds the fingerprints of all ids whose hash begins with the bits that its mask keeps, and says of which days.
insert into {{slot}} (hash_from, mask, lock_key, covered_from, covered_to, fingerprints)
select
  hashed.key >> {{shift}} << {{shift}}, (-1)::bigint << {{shift}}, {{lock_key}}, {{from}}, {{to}},
  string_agg(int4send((hashed.key << 32 >> 32)::int), ''::bytea)
from (
  {{ids}}
) as hashed (key)
group by hashed.key >> {{shift}}
