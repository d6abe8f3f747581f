"""The one place that puts parts together: the `teacup` command, job files, the runner of jobs.

audit/              `teacup audit`: a time range joined again by brute force, and compared
check/              `teacup check`: the files of services, and what a job would meet
cli/                the `teacup` command
dev/                the demos, and a broker for development
explain/            `teacup explain`: why a record was joined, or not
jobfile/            the keys of job files
jobs/               one runner, and a module for each kind of job
output/             which rows are written where, and how
standby/            `teacup run --standby`: a process that waits, warm, and takes over
status/             `teacup status`: how jobs are that run elsewhere
watch/              what a running job tells: lines, metrics
checkpoint_file.py  a checkpoint on any file system: access, and a small file of ours in it
checkpoint_lock.py  one process per checkpoint
errors.py           what is refused or given up (pure)
job.py              jobs as plain, validated data (pure)
kinds.py            the kinds of jobs, one line each
load.py             a job file becomes a job
shared_process.py   which job files of a shared process run, which are wrong, and why (pure)
submit.py           `spark-submit deploy/submit.py JOB.yaml`

Public: `deploy.cli.__main__.main`, which is the command `teacup`; the rest is internal.

Job files to start from are in `examples`, a crontab line and a Kubernetes CronJob in `manifests`.
"""
