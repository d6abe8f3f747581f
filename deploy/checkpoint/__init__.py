"""A checkpoint as a folder of this machine.

durable.py      local files that survive a power failure
localfolder.py  whether a checkpoint is a folder of this machine (pure)
lock.py         one process per checkpoint
"""
