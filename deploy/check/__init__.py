"""`teacup check --connect`: what a job would meet, found out at once and without changing anything.

`teacup check` of a service's file:

servicefiles.py of which service a file is, and everything that is wrong with it

and of a job's, with --connect:

brokerfacts.py  what the brokers say about the topics and groups of a job
checks.py       what a kind of job has checked
connect.py      everything that a job file names, looked at
findings.py     what the facts mean for the job
observed.py     what was found out, as data (pure)
places.py       checkpoints and folders
samples.py      a sample of the records that a job reads
services.py     the APIs of a feeder and a lookup join
topics.py       the topics of a job: how they are named, and a check that they exist
"""
