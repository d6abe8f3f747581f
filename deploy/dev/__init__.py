"""For development: the demos and their parts. Nothing in production uses it.

demo.py            `make demo`
demo_lookup.py     `make demo-lookup`
demoparts.py       what the demos share
demotraffic.py     impressions and clicks as they happen, at a rate, by a thread; impressions can be withheld for a
                   while
demoverdict.py     whether the demo's lookup join kept its promises, judged by its output (pure)
lookupparts.py     all parts of a lookup join on this machine, each run as users run it
"""
