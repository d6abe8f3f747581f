"""SyncBolt, in the driver: how far each batch may read, so that left advances in step with right.

start/           where a new checkpoint starts (pure)
bucket_plan.py   one bucket's part of a batch
clock_checks.py  before a batch is logged, its records are checked against the clock
committed.py     what a committed batch left behind
log_checks.py    what retention, truncation or a new topic has taken stops the join (pure)
readable.py      one side of a bucket when a batch is planned (pure)
reader.py        the Spark reader of a join, whichever join kind
source.py        the in-memory join as a streaming data source that emits tickets, not records (`joins.plan.reader`)
sync_bolt.py     SyncBolt: how far a batch may read, a hint
wait_reasons.py  why nothing may be read now (pure)
"""
