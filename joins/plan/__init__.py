"""SyncBolt, in a thread of the driver: how far each batch may read, so that left advances in step with right.

start/            before the first batch: co-partitioning, samples, where both sides start
available_now.py  what a run under `available_now` reads, and when it ends (pure)
bucket_plan.py    one bucket's part of a batch: how far each of its partitions is read (pure)
clock_checks.py   stops planning while something contradicts the wall clock
clock_steps.py    the clock of a run under `available_now`, in steps (pure)
log_checks.py     stops the join if retention, truncation or a recreated topic has taken what it needs (pure)
readable.py       one side of a bucket: how far it can be read, and how far it is worth reading (pure)
reader.py         the Spark reader of a join, whichever join kind, and what a committed batch left behind
source.py         the in-memory join as a streaming data source that emits tickets, not records
sync_bolt.py      SyncBolt: what a batch may read (pure)
wait_reasons.py   why nothing may be read now: what left waits for (pure)
"""
