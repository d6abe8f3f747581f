"""Jobs, carried out: one runner for all kinds, and a module for each kind.

The loop, from the first moment to the exit code:

    stopping.py    how a job is asked to stop
    job_share.py   what a job has of a process that it shares
    many_jobs.py   many jobs in one process: starts, failures, restarts, changed files
    host.py        what a job has of its process, and its Spark session
    runner.py      the loop
    standby.py     `teacup run --standby`: a process waits, warm, for its turn
        failures.py    what tasks report, missing executors, an exit code for what failed

The kinds, each with the report of its batches:

    join.py         the two joins; what their tasks deduplicate with
    join_report.py  the metrics of a join's batch, added up over its buckets; a join that matches nothing (pure)
    dedup.py        a topic deduplicated into another one
    feeder.py       right records into the storage API

What a join does before Spark starts, and beside it:

    join_start.py       topics and receipts compared with its checkpoint; the output claimed
    move.py             `teacup move`: a new checkpoint goes on where another one ended
    rewind/             `teacup rewind`: back in time, in place or beside the live job
    replan.py           of every kind: a batch that was planned, and can no longer be read, is planned again
    unjoined/           `teacup unjoined`, made for cron

**Add a metric of a batch:** a task counts it in its summary (a join: `joins.read.summary.BucketSummary`), the kind's
report adds it up (a join: `gather` in join_report.py; else `gathered` of the kind), and shows it in `usual`, in `rare`
or only in `for_machines`. Prometheus gets what is in `samples` (`deploy.watch`).

**Add a kind of job:** a subclass of `deploy.kinds.job_kind.JobKind` in a module here, keys in a module of
`deploy/jobfile/`, and a line in `deploy/jobfile/kinds.py`.
"""
