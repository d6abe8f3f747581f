"""Ranges of a partition as Arrow batches.

fetch.py         what a range reader needs of a consumer, whichever makes the records into columns
native_fetch.py  records of a consumer, made into Arrow columns in C
range_reader.py  reads ranges of a partition as Arrow batches
"""
