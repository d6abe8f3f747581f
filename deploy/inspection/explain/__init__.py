"""`teacup explain`: why a record was joined, or not, from topics, output and checkpoint alone. It only reads.

answers.py  answers questions about a key, or about the record at a position
as_json.py  the answer for machines (pure)
inputs.py   records of both topics, by position or by key and time, parsed as the join parses them
left.py     the answer about a left record
model.py    the answer as data (pure)
plans.py    which batch read a record, and what was known then: the plans that the checkpoint still has
remedy.py   what to change so that a left record would have had a match (pure)
right.py    the answer about a right record
sources.py  what answers are made of: the job, its plans, both topics, and what it has written
stored.py   lookup join: what the store holds of a key now
text.py     the answer for people, in about ten lines (pure)
written.py  rows in the output and copies in side topics, found by their headers

`joins.explain` decides which record won.
"""
