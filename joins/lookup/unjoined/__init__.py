"""Finds right records that no left record has matched, from the output of a lookup join.

expired.py   which right records of a lookup join can no longer match, and where to look for rows in which they appear
             (pure)
verdicts.py  the verdicts on a slice of one right partition, record by record in offset order
"""
