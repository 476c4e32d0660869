-- inboxd: build digest, a first row for the hashes below all others
insert into {{slot}} (hash_from, lock_key, covered_from, covered_to, fingerprints)
values ((-9223372036854775808)::bigint, {{lock_key}}, {{from}}, {{to}}, '')
on conflict do nothing
