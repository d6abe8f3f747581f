"""The verdicts of an audit, over tables of numbers: no topic, no checkpoint, no clock.

choice.py     which right records one left record may have been joined with, however the run went (pure)
compare.py    every verdict, one question after the other (pure)
contents.py   what rows say, compared by digests (pure)
corrected.py  what the rows would be if every record had been there in time (pure)
database.py   the tables in DuckDB, and the faults that are gathered there (pure)
joined.py     the join by brute force, and the rows beside it (pure)
scope.py      what the join says, and what of it is audited (pure)
sides.py      the side topics (pure)
verified.py   which records are verified (pure)
"""
