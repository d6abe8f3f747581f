"""Job files: which keys they may have, and the job that they become.

dedup_keys.py   the keys of a deduplication
feeder_keys.py  the keys of a feeder
job_keys.py     the keys that all jobs have, and how keys become data
join_keys.py    the keys of the two joins
reference.py    the keys for readers: JSON schema, and the tables of docs/reference.md
values.py       values as people write them: starts, names, properties (pure)

`deploy.kinds` makes a job of a file.
"""
