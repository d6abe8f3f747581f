"""The feeder writes right's records to the store that lookup joins read.

source.py  the Spark edge of the feeder
spec.py    what a feeder is, and its batches as data (pure)
stage.py   a feeder's task
"""
