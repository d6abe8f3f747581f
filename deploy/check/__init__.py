"""`teacup check --connect`: what a job would meet, found out at once and without changing anything.

broker.py     what the brokers say about the topics and groups of a job
checks.py     what a kind of job gives to look at
connect.py    everything that a job file names, looked at
facts.py      what was found out, as data (pure)
findings.py   what the facts mean for the job
places.py     checkpoints and folders
records.py    a sample of the records that a job reads
services.py   the APIs of a feeder and a lookup join
"""
