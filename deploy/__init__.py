"""The one place that puts parts together: the `teacup` command, job files, the runner of jobs, the development broker.

check/     `teacup check --connect`
cli/       the `teacup` command
dev/       for development
jobfile/   job files
jobs/      one runner, and a module for each kind of job
output/    what is written, and where
errors.py  what is refused or given up
spark/     Spark, started and stopped
submit.py  `spark-submit deploy/submit.py JOB.yaml`

Public: `deploy.cli.command.main`, which is the command of the name teacup; the rest is internal.

Job files to start from are in `examples`, a crontab line and a Kubernetes CronJob in `manifests`.
"""
