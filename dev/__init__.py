"""For development: the demos and their parts. Nothing in production uses it.

demo.py          `make demo`: ad impressions and clicks, joined on a real broker, and the deadlock
demo_lookup.py   `make demo-lookup`: clicks look up impressions in a store, and wait while right pauses
demo_parts.py    what the demos share: broker and topics, live traffic, the judge of the output
lookup_parts.py  all parts of a lookup join on this machine, each run as users run it
release/         wheels and their checks: `make wheels`, `make release-check`
"""
