"""Job files: which keys they may have, and the job that they become.

load.py         a file -> a job
jobkeys.py      the keys that all jobs have, and how keys become data
joinkeys.py     the keys of the two joins
dedupkeys.py    the keys of a deduplication
feederkeys.py   the keys of a feeder
jobvalues.py    values as people write them: durations, starts, names, properties      (pure)
librdkafka.py   whether librdkafka accepts a property
reference.py    the keys for readers: JSON schema, and the tables of docs/reference.md

Public: `deploy.jobfile.load.load_job`. The rest is internal.
"""
