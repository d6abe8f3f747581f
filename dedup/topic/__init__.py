"""One topic deduplicated into another.

job.py        the job as data, and what a task says of its range (pure)
read_back.py  the ids in one partition of the output, read back from it
source.py     Spark
stage.py      what a task does with a range of records
"""
