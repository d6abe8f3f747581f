"""The feeder: writes right records to the store that lookup joins read.

source.py  the Spark edge: a source that feeds while reading
spec.py    what a feeder is, its batches as data, and what it never feeds (pure)
stage.py   the feeder's task: writes a range of right to the storage API
"""
