"""The feeder writes right's records to the store that lookup joins read.

source.py  the Spark edge: a source that feeds while reading
spec.py    what a feeder is, its batches as data, and what it never feeds (pure)
stage.py   a feeder's task: writes a range of right to the storage API
"""
