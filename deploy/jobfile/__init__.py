"""Job files: which keys they may have, and how keys become the data of a job.

job_keys.py     the keys that all jobs have, the parts that several share, and how keys become data
join_keys.py    the keys of the two joins, and a changed join in the words of a job file
dedup_keys.py   the keys of a deduplication
feeder_keys.py  the keys of a feeder
reference.py    the keys for readers: JSON schema, and the tables of docs/reference.md
values.py       values as people write them, with defaults and bounds from the spec they become part of (pure)

`deploy.load` makes a job of a file. Another kind of job has its keys in a module here, and a line in `deploy/kinds.py`.
"""
