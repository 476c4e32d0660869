-- Of a primary key that was just looked at.
        else
          -- No other index ever has this one's OID, and none changes its columns: until it goes, there is no need to ask again.
          remembered := set_config({{key_setting}}, pg_get_replica_identity_index(holder)::oid::text, false);
        