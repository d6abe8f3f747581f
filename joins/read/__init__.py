"""In a task: ranges of both sides, from the log to the records that may go, and what they prove.

batch_reader.py  reads one bucket's batch: right first, then left as far as right has come (pure)
deserialize.py   decodes the records of a side
facts_files.py   the facts of batches as files: a cache
parse.py         which records take part, and which are dead letters, and why (pure)
range_gate.py    which records of a partition's range may go, and which facts they give (pure)
side_log.py      opens the log of a side's topic for searches by time
summary.py       what the join did with a bucket's batch (pure)
waits.py         a batch's samples for the wait curve (pure)
"""
