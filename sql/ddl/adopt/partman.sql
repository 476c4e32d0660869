-- inboxd: adopt, ask whether pg_partman looks after a table
select exists (select from {{schema}}.part_config as config where config.parent_table = {{table}}) as looks_after
