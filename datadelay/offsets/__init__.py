"""Finds the offsets of a time, and sets a consumer's positions to them.

search.py      the offset of a time in each partition, and whether it can be trusted
rewriting.py   a plan with old and new positions, an undo file, and only then the write
"""
