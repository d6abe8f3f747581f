"""The shuffled path of the in-memory join: any two topics, whatever their partitions and keys.

pieces.py  what goes through the shuffle: records by the part of their keys, and parts put together again (pure)
source.py  the Spark edge: plans batches, and shuffles what was fetched

Each partition with something to read is a piece of work: its range is fetched, and its records are divided by the
bucket of their key. Spark's shuffle brings the pieces of a bucket together, and the same JoinBolt as on the direct path
joins them. A small batch is a Spark task for each executor on either side of the shuffle; on one machine it is one,
without.

The partitions of both sides are one bucket of the batch plan. Facts are about partitions, not keys, so the fetching
tasks find them. Left is fetched at the same time as right, so it goes only as far as right's watermark was known to be
before the batch: a row comes a batch later than on the direct path.
"""
