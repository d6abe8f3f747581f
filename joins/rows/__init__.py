"""Records and rows as Arrow and polars frames: the input and the output of both joins.

buckets.py   which bucket a key belongs to (pure)
frames.py    the columns of records and rows, and work on frames column by column (pure)
outgoing.py  records on their way to one topic, changed where the topic would refuse them (pure)
"""
