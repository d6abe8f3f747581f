"""The edge to Spark that `joins` and `dedup` share; it knows nothing of them.

checkpoint.py  what a query's checkpoint says: planned and committed batches, and where each of them ends
crossing.py    how an error of ours crosses Spark, with the exit code of its class

Nothing is imported here: whoever reads a checkpoint needs no Spark.
"""
