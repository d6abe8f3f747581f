"""Records and rows as Arrow and polars frames: the input and the output of both joins.

chunks.py    rows in chunks of bounded bytes, so that a task's memory does not depend on the size of its records (pure)
copies.py    copies of records for side topics, as they were read (pure)
frames.py    frames, column by column (pure)
intake.py    which of the records that were read take part, and which go to the dead-letter topic, with the
             reason (pure)
outgoing.py  records on their way to one topic, changed where the topic would refuse them (pure)
placing.py   which bucket a key belongs to, on the shuffled path (pure)
reading.py   what a side finds in its records: times, join keys, and values that cannot be used (pure)
records.py   the frames that the window works on (pure)
rightrow.py  right records as items of the storage API, and back, whole columns at a time (pure)
schemas.py   which schemas the registry had when a record was read (pure)
"""
