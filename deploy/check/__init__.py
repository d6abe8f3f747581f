"""`teacup check`: what is wrong with a file, and, with --connect, what its job would meet. Nothing is changed.

checks.py           what a kind of job has checked
connect.py          everything that a job file names, looked at
facts.py            what was found out, as data (pure)
findings.py         what the facts mean for the job
lookup_findings.py  what the facts about a store and its gate mean for a lookup join
samples.py          a sample of the records that a job reads
service_files.py    of which service a file is, and everything that is wrong with it
"""
