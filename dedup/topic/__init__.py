"""One topic deduplicated into another.

accepted.py    records of the source as the output accepts them (pure)
framedids.py   whether ids can be found in the values of a topic
job.py         the job as data, and what a task says of its range (pure)
partitions.py  whether a record can keep its partition: both topics have as many
readback.py    the ids in one partition of the output, read back from it
recentids.py   ids seen within a window of record times, in buckets of a quarter of it (pure)
remaining.py   the records of a range that are still there
source.py      Spark
stage.py       what a task does with a range of records
"""
