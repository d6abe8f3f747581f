"""The one place that puts parts together: the `teacup` command, job files, the runner of jobs.

check/              `teacup check --connect`
cli/                the `teacup` command
dev/                the demos
jobfile/            the keys of job files
jobs/               one runner, and a module for each kind of job
output/             what is written, and where
checkpoint_lock.py  one process per checkpoint
errors.py           what is refused or given up
job.py              jobs as plain, validated data (pure)
kinds.py            the kinds of jobs, one line each
submit.py           `spark-submit deploy/submit.py JOB.yaml`

Public: `deploy.cli.command.main`, which is the command of the name teacup; the rest is internal.

Job files to start from are in `examples`, a crontab line and a Kubernetes CronJob in `manifests`.
"""
