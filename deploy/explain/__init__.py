"""`teacup explain`: why a record was joined, or not, from topics, output and checkpoint alone. It only reads.

model.py    the answer as data (pure)
plans.py    which batch read a record, and what was known then: the plans that the checkpoint still has
inputs.py   records of both topics, by position or by key and time, parsed as the join parses them
written.py  rows in the output and copies in side topics, found by their headers
stored.py   lookup join: what the store holds of a key now
answers.py  puts it together: the answer about a left or a right record, or about a key
text.py     the answer for people, in about ten lines (pure); as_json.py: for machines (pure)

What decides who won is `joins.explain`.
"""
