"""One topic deduplicated into another.

job.py     one topic deduplicated into another
source.py  Spark
window.py  ids seen within a window of record times, in buckets of a quarter of it (pure)
"""
