"""Job files: which keys they may have, and how a file becomes a job.

job_keys.py        the keys that all jobs have, the parts that several share, and how keys become data
join_keys.py       the keys of the two joins, and a changed join in the words of a job file
dedup_keys.py      the keys of a deduplication
feeder_keys.py     the keys of a feeder
job.py             jobs as plain, validated data (pure)
kinds.py           the kinds of jobs, one line each
load.py            a job file becomes a job
reference.py       the keys for readers: JSON schema, and the tables of docs/reference.md
service_files.py   the files of services: which is which, and `teacup check` of one
shared_process.py  which job files of a shared process run, which are wrong, and why (pure)
values.py          values as people write them, with defaults and bounds from the spec they become part of (pure)

Another kind of job has its keys in a module here, and a line in `kinds.py`.
"""
