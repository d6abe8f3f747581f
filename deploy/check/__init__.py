"""`teacup check`: what is wrong with a file, and, with --connect, what its job would meet. Nothing is changed.

brokerfacts.py     what the brokers say about the topics and groups of a job
checks.py          what a kind of job has checked
connect.py         everything that a job file names, looked at
findings.py        what the facts mean for the job
lookupfindings.py  what the facts about a store and its gate mean for a lookup join
observed.py        what was found out, as data (pure)
places.py          checkpoints and folders
samples.py         a sample of the records that a job reads
servicefiles.py    of which service a file is, and everything that is wrong with it
services.py        the APIs of a feeder and a lookup join
topics.py          the topics of a job: how they are named, and a check that they exist
"""
