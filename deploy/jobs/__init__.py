"""Jobs, carried out: one runner for all kinds, and a module for each kind.

unjoined/           `teacup unjoined`, made for cron
dedup.py            the deduplication of a topic into another one as a kind of job
feeder.py           a feeder as a kind of job
join.py             the two joins as a kind of job
join_checkpoint.py  what a join's checkpoint says before Spark starts
join_report.py      what a join reports of a batch, over all its buckets (pure)
lines.py            what a job prints on standard output
move.py             a new checkpoint of a join goes on where another one ended
query.py            the summaries of a batch, and an exit code for what failed
replan.py           a batch that was planned, and can no longer be read, is planned again
runner.py           run a job until it is done, or asked to stop
stopping.py         how a job is asked to stop

A new kind of job is a subclass of `deploy.jobs.runner.JobKind`, and a line in `deploy/kinds.py`.
"""
