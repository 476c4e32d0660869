-- inboxd: build digest, rows for the hashes that no id has
insert into {{slot}} (hash_from, mask, lock_key, covered_from, covered_to, fingerprints)
select row_number << {{shift}}, (-1)::bigint << {{shift}}, {{lock_key}}, {{from}}, {{to}}, ''
from generate_series({{first}}::bigint, {{last}}::bigint) as row_number
on conflict do nothing
