"""What a kind of job gives to whoever runs it, checks it, or looks at it.

event_time_lag.py  how far a job is in event time, and what holds it, from its last batch and its topics (pure)
job_kind.py        `JobKind`, and the one that carries a job out

The kinds themselves are in `deploy.jobs`.
"""
