"""The deduplicator that a restart triggers: it filters replays against recent results, then turns itself off.

deduplicator.py  the deduplicator of one worker process (pure)
hashing.py       ids as 128-bit hashes, one column at a time (pure)
report.py        what deduplicators report of a batch (pure)
seen.py          which ids were seen (pure)
spark.py         the Spark edge
states.py        when the deduplicator filters (pure)
worker.py        the deduplicator in a worker process
"""
