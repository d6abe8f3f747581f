"""Keeps an output free of duplicates after a restart; off, it costs nothing.

deduplicator.py  one worker's deduplicator                                   (pure)
states.py        off -> filtering -> off, and why                            (pure)
replayrange.py   what may be a replay, and where its results may stand       (pure)
seen.py          the ids that were seen; hashing.py: ids as 16 bytes         (pure)
results.py       recent results, a Protocol; kafkaresults.py, lakeresults.py: of a topic, of files
identity.py      what identifies a result
worker.py        the deduplicator in a worker process: waits, loads, says so
spark.py         Spark: attempts and the replay range; `restart_deduplicator` for any streaming DataFrame
topicsource.py, topicjob.py   one topic deduplicated into another
keyed.py         values by key that survive replays                          (pure)
"""
