"""`teacup unjoined`, made for cron: right records of a lookup join that appear in no output row and never will.

run.py    the run: slices, one after the other, until none is left; the report of each
snapshot.py   a snapshot of the join and the topics, before it plans
stage.py  one slice as a Spark batch job: right records without a row, delivered
"""
