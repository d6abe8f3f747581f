"""Job files: which keys they may have, and the job that they become. `load.load_job` is what others call.

load.py         a file -> a job; which kinds there are
joinkeys.py     keys of the two joins
feederkeys.py   keys of a feeder
values.py       values as people write them: starts, paths, properties
librdkafka.py   whether librdkafka accepts a property
reference.py    the keys for readers: JSON schema, and the table of docs/reference.md
"""
