"""Finds right records that no left record has matched, from the output of a lookup join.

expired.py   which right records can no longer match, and where rows in which they appear can be (pure)
verdicts.py  the verdicts on a slice of one right partition, record by record in offset order (pure)
"""
