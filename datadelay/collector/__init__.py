"""Looks at every consumer and topic, and submits how far they have come.

config.py   its configuration
observe.py  looks at one consumer in one topic
reports.py  turns observations into a submission (pure)
run.py      one run: everything at once, within its deadline; ends with an exit code
"""
