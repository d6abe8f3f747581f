"""A Kafka of one node, for a first try, development, tests and benchmarks: `teacup dev broker`.

broker.py          a single-node Kafka in its own folder, on free ports
brokercommand.py   it runs in the foreground
brokerjars.py      its jars, fetched once through Maven
brokersettings.py  what its `server.properties` say
lifeline.py        a command that dies with the process that started it, however that process ends
ports.py           free ports of this machine
"""
