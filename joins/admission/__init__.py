"""SyncBolt: how far each batch may read, so that left advances in step with right.

admission.py    SyncBolt: how far a batch may read, a hint
batchreader.py  one bucket's batch is read: right first, then left as far as right has come
bounds.py       what earlier batches saw in a partition, in a few numbers (pure)
clockcheck.py   before a batch is logged, its records are checked against the clock
committed.py    what a committed batch left behind
control.py      how the planner of a join is controlled from outside
copartition.py  whether both topics keep a key in the same partition
evidence.py     what the times of a partition's records prove about those that follow
facts.py        what a batch found out (pure)
factsfolder.py  the facts of batches as files
firstlook.py    a look at some records of both topics before a join starts
folders.py      where a machine keeps the files of a join's batches
guard.py        what retention, truncation or a new topic has taken stops the join (pure)
holding.py      why nothing may be read now (pure)
keysample.py    what samples of both topics say about their join keys (pure)
listing.py      how far both topics reach when a batch is planned (pure)
lockstep.py     plans that need look-ups in the log (pure)
moved.py        a new checkpoint that goes on after another one, as a changed join (pure)
onerun.py       what a run under `availableNow` reads, and so when it ends (pure)
passage.py      one partition's range on its way through a batch (pure)
plan.py         one bucket's part of a batch
planahead.py    a plan for the next batch, made while the current one runs, from the facts that the current one is
                expected to find
planclock.py    the wall clock as the planner of a join reads it
quiet.py        how long a look that found nothing to do stays right (pure)
ranges.py       a partition's range of a batch, from the log to the records that may go
readable.py     one side of a bucket when a batch is planned (pure)
reader.py       the Spark reader of a join, whichever flavour
rules.py        how far right is complete, how far left may go, what expires (pure)
source.py       the in-memory join as a streaming data source that emits tickets, not records
                (`joins.admission.reader`)
start.py        where a new checkpoint starts (pure)
state.py        the admission as data (pure)
summary.py      what the join has done with a bucket's batch (pure)
target.py       how far right may be read without exceeding the batch's share of records (pure)
ticket.py       a bucket's share of an admission, as it travels from the driver to the task that carries it out (pure)
"""
