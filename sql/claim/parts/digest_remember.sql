-- The mask of a row that ruled something out.
        if mask is not null then
          -- Where the next claim of this session looks at once.
          remembered := set_config({{mask_setting}}, mask::text, false);
        end if;
