-- One row.
        {{outcome_of_row}}
        processed_at := first_at;
        return next;
        return;
