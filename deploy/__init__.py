"""The one place that puts parts together: the `teacup` command, job files, the runner of jobs.

From top to bottom; each room imports only those below it. `jobs` (which runs) and `inspection` (which looks) stand
beside each other, and know nothing of each other:

cli/         the `teacup` command
jobs/        one runner, and a module for each kind of job
inspection/  `teacup audit`, `explain`, `status`: looks at jobs that run elsewhere, and at their rows
kinds/       what a kind of job gives to whoever runs it or looks at it
check/       `teacup check`: what a job would meet
checkpoint/  a job's checkpoint: who may write in it, what it says, and our files in it
watch/       what a running job tells: lines, metrics, its page
output/      which rows are written where, and how
jobfile/     job files: their keys, and the jobs that they become
broker/      a Kafka broker for development
errors.py    what is refused or given up (pure)
submit.py    `spark-submit deploy/submit.py JOB.yaml`

Public: `deploy.cli.__main__.main`, which is the command `teacup`; the rest is internal.

Job files to start from are in `examples`, a crontab line and a Kubernetes CronJob in `manifests`.
"""
