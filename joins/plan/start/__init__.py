"""What happens before the first batch: sampling, the check for co-partitioning, and finding where both sides start.

copartition.py     decides which path a join takes: whether both topics keep a key in the same partition
positions.py       where a new checkpoint starts (pure)
startup_sample.py  samples some records of both topics before a join starts
"""
