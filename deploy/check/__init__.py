"""`teacup check`: what is wrong with a job file and, with --connect, what its job would meet. Nothing is changed.

access.py           what a job's user may do at the brokers; names everything that is missing at once
analysis.py         what Spark's analyser says of a job's `output.select`
checks.py           what a kind of job depends on outside of its file
connect.py          checks what a job depends on outside of its file: topics, groups, APIs, checkpoint, folders
findings.py         the facts that were found, as data, and what they mean for the job
lookup_findings.py  checks the two APIs of a lookup join or a feeder, and what a join would find there
machine.py          what a job needs on this machine: Java, a user with a name, folders, Spark's master
preview.py          joins the first left records without writing anything
samples.py          samples keys and times of the records that a job reads
uses.py             what a job or a command does at the brokers: the least that must be granted
"""
