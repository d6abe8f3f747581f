"""Job files: which keys they may have, and the job that they become.

jobkeys.py      the keys that all jobs have, and how keys become data
joinkeys.py     the keys of the two joins
dedupkeys.py    the keys of a deduplication
feederkeys.py   the keys of a feeder
joinwording.py  what differs from the join of a checkpoint, in the words of a file
fromspec.py     keys that become fields of a spec take default, bounds and unit from it (pure)
jobvalues.py    values as people write them: starts, names, properties      (pure)
librdkafka.py   whether librdkafka accepts a property
reference.py    the keys for readers: JSON schema, and the tables of docs/reference.md

`deploy.load` makes a job of a file.
"""
