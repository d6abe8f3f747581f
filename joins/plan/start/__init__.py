"""Before the first batch: samples, co-partitioning, where both sides start.

copartition.py     which path a join takes: whether both topics keep a key in the same partition
positions.py       where a new checkpoint starts (pure)
startup_sample.py  a look at some records of both topics before a join starts
"""
