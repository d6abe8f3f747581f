"""In a task: ranges of both sides, from the log to the records that may go, and what they prove.

batch_reader.py  one bucket's batch is read: right first, then left as far as right has come
deserialize.py   the records of a side as a join reads them
facts_files.py   the facts of batches as files
parse.py         which of the records that were read take part, and which go to the dead-letter topic, with the reason
                 (pure)
range_gate.py    one partition's range on its way through a batch (pure)
summary.py       what the join has done with a bucket's batch (pure)
"""
