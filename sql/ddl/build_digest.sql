-- inboxd: build digest
--
-- A row holds the fingerprints of all ids whose hash lies between its own `hash_from` and the next row's, and says of which days.
insert into {{slot}} (hash_from, lock_key, covered_from, covered_to, fingerprints)
select
  hashed.key >> {{shift}} << {{shift}}, {{lock_key}}, {{from}}, {{to}},
  string_agg(int4send((hashed.key << 32 >> 32)::int), ''::bytea)
from (
  {{ids}}
) as hashed (key)
group by hashed.key >> {{shift}}
