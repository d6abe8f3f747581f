"""The embedded back end.

files.py  detects a store that may be broken because the machine went down
store.py  LMDB: one environment in a folder of this machine
"""
