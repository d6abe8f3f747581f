"""For development: a single-node Kafka, the demos and their parts. Only `teacup broker` uses it in production.

broker.py          a single-node Kafka for development, tests and benchmarks
brokercommand.py   the development broker in the foreground
brokerjars.py      the jars of the development broker
brokersettings.py  what the development broker's `server.properties` say
demo.py            `make demo`
demo_lookup.py     `make demo-lookup`
demoparts.py       what the demos share
demotraffic.py     impressions and clicks as they happen, at a rate, by a thread; impressions can be withheld for a
                   while
demoverdict.py     whether the demo's lookup join kept its promises, judged by its output (pure)
lifeline.py        a command that dies with the process that started it, however that process ends
lookupparts.py     all parts of a lookup join on this machine, each run as users run it
ports.py           free ports of this machine
"""
