greatest(case when created <= clock + interval {{producer_clock_tolerance}} then created end, timestamptz 'epoch') - interval {{producer_clock_tolerance}}
