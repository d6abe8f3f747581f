"""Records and rows as Arrow and polars frames: the input and the output of both joins.

buckets.py   which bucket a key belongs to, on the shuffled path (pure)
frames.py    frames, column by column (pure)
outgoing.py  records on their way to one topic, changed where the topic would refuse them (pure)
"""
