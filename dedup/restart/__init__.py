"""The deduplicator that a restart triggers: it filters replays against recent results, then turns itself off.

deduplicator.py  the deduplicator of one worker process (pure)
seen_ids.py      which ids were seen (pure)
states.py        when the deduplicator filters (pure)
worker.py        the deduplicator in a worker process
"""
