"""A Kafka of one node, for a first try, development, tests and benchmarks: `teacup dev broker`.

broker.py    a single-node Kafka in its own folder, on free ports
command.py   it runs in the foreground
jars.py      its jars, fetched once through Maven
lifeline.py  a command that dies with the process that started it, however that process ends
"""
