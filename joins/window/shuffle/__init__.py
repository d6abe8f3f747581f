"""The shuffled path of the in-memory join: any two topics, whatever their partitions and keys.

pieces.py  what goes through the shuffle: records by the part of their keys, and parts put together again (pure)
source.py  the Spark edge: plans batches, and shuffles what was fetched

Each partition with something to read gets a task, which fetches its range and divides the records by the bucket of
their key. Spark's shuffle brings the pieces of a bucket together, and the same JoinBolt as on the direct path joins
them.

The partitions of both sides are one bucket of the batch plan. Facts are about partitions, not keys, so the fetching
tasks find them. Left is fetched at the same time as right, so it goes only as far as right's watermark before the batch
allows.
"""
