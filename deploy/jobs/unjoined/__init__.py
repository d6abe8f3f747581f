"""`teacup unjoined`, made for cron: right records of a lookup join that appear in no output row and never will.

run.py    the run: slices, one after the other, until none is left
look.py   what is looked at before a slice is planned, the state between runs, the report of a slice
stage.py  one slice as a Spark batch job: right records without a row, delivered
"""
