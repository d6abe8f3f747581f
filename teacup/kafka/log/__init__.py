"""A topic as a log: its ends, the offset of a time, what it has lost, committed positions.

admin.py         topics as the brokers describe them: whether they answer, what the user may do, what was truncated
broker_log.py    one topic of a real broker, as a planner sees it
groups.py        committed positions of a consumer group, without being a member of it
losses.py        whether a partition still holds what a reader needs of it (pure)
point_reader.py  reads single records at given offsets, of many partitions at once
replicas.py      whether topics have enough replicas for a write
time_search.py   finds where a time begins among records that are not sorted by time, some of them wrong (pure)
topic_log.py     what a reader that plans its own ranges must know of a topic, and how far it reads (pure)
"""
