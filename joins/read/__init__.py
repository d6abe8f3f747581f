"""In a task: ranges of both sides, from the log to the records that may go, and what they prove.

batch_reader.py  how one bucket's batch is read: right first, then left as far as right has come (pure)
deserialize.py   the records of a side as a join reads them
facts_files.py   the facts of batches as files: a cache
parse.py         which records take part, and which go to the dead-letter topic, with the reason (pure)
range_gate.py    one partition's range: which of its records may go, and which facts it leaves (pure)
side_log.py      the log of a side's topic, as every part that searches it by time opens it
summary.py       what the join has done with a bucket's batch (pure)
waits.py         what it contributes to the wait curve (pure)
"""
