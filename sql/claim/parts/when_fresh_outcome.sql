-- One row.
outcome := 'fresh';
      processed_at := clock;
      return next;
      return;
