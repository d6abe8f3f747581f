"""For development: the demos and their parts. Nothing in production uses it.

broker/          a Kafka of one node: `teacup dev broker`
demo.py          `make demo`
demo_lookup.py   `make demo-lookup`
demo_parts.py    what the demos share
lookup_parts.py  all parts of a lookup join on this machine, each run as users run it
"""
