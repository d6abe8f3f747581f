"""`teacup check`: what is wrong with a file, and, with --connect, what its job would meet. Nothing is changed.

access.py           what a job's user may do at the brokers; everything that is missing, at once
checks.py           what a kind of job names outside of its file
connect.py          what a job names outside of its file, looked at: topics, groups, APIs, checkpoint, folders
findings.py         what was found out, as data, and what it means for the job
lookup_findings.py  the two APIs of a lookup join or a feeder, looked at, and what a join would meet there
machine.py          what a job needs of this machine: Java, a user with a name, folders, Spark's master
preview.py          the first left records of a join, joined without writing anything
samples.py          keys and times of a sample of the records that a job reads
to_the_end.py       what a job that reads to the end and stops waits for
uses.py             what a job, or a command, does at the brokers: the least that must be granted
"""
