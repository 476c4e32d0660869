-- Before this, nobody can have claimed the message. The epoch stands for an unknown time.
greatest(case when created <= clock + interval {{producer_clock_tolerance}} then created end, timestamptz 'epoch') - interval {{producer_clock_tolerance}}
