"""The back end on Aerospike.

facts.py    what Aerospike's nodes say about themselves, and whether they have what they acknowledged (pure)
records.py  records of Aerospike sets, changed by compare-and-swap
store.py    Aerospike: one record per key
"""
