"""The deduplicator that a restart triggers: it filters replays against recent results, then turns itself off.

deduplicator.py  the deduplicator of one worker process: when it filters, and which rows have no result yet (pure)
seen_ids.py      which ids were seen, as hashes (pure)
worker.py        the edge to Spark: what a task knows of a restart, and the deduplicator in a worker process
"""
