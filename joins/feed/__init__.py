"""The feeder writes right's records to the store that lookup joins read.

feed.py      what a feeder is, and its batches as data (pure)
source.py    the Spark edge of the feeder
stage.py     a feeder's task
"""
