"""Records and rows as Arrow and polars frames: what both joins take in, and what they give.

chunks.py   rows in chunks of bounded bytes, so that a task's memory does not depend on the size of its records (pure)
intake.py   which of the records that were read take part, and which go to the dead-letter topic, with the
            reason (pure)
placing.py  which bucket a key belongs to, on the shuffled path (pure)
reading.py  what a side finds in its records: times, join keys, and what cannot be used (pure)
records.py  the frames that the window works on (pure)
"""
