"""The embedded back end.

store.py   LMDB: one environment in a folder of this machine
upkeep.py  marks that reveal a crash of the machine, and which keys to check for expired items
"""
