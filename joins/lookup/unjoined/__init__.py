"""Finds right records that no left record has matched, from the output of a lookup join.

expired.py   which right records can no longer match, and where in the output their rows can be (pure)
verdicts.py  judges a slice of one right partition, record by record in offset order (pure)
"""
