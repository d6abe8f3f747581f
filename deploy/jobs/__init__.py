"""Jobs, carried out: one runner for all kinds, and a module for each kind.

backlog.py         how much a job still has to read, and when it will have caught up
beginning.py       receipts are compared with the checkpoint, then the output is claimed
joincheckpoint.py  what a join's checkpoint says before Spark starts
deduplication.py   what the tasks of a join need to drop results that were written before
dedup.py           the deduplication of a topic into another one as a kind of job
feeder.py          a feeder as a kind of job
kafkachecks.py     what Kafka alone can tell against a join, asked before Spark starts
join.py            the two joins as a kind of job
lines.py           what a job prints on standard output
lostplan.py        a batch that was planned, and can no longer be read, is planned again
matching.py        a join that matches nothing says so once (pure)
moving.py          a new checkpoint of a join goes on where another one ended
query.py           the summaries of a batch, and an exit code for what failed
report.py          what a join reports of a batch, over all its buckets (pure)
runner.py          run a job until it is done, or asked to stop
stopping.py        how a job is asked to stop
unjoined.py        `teacup unjoined`, made for cron
unjoinedlook.py    what `teacup unjoined` looks at before it plans a slice
unjoinedreport.py  what `teacup unjoined` reports of a slice (pure)
unjoinedstage.py   one slice of unjoined right records as a Spark batch job
unjoinedstate.py   where `teacup unjoined` keeps its verdicts

A new kind of job is a subclass of `deploy.jobs.runner.JobKind`, and a line in `deploy/kinds.py`.
"""
