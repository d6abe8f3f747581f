"""A Kafka of one node, for a first try, development, tests and benchmarks: `teacup dev broker`.

broker.py    the broker in its own folder, on free ports, and running it in the foreground
jars.py      its jars, fetched once through Maven
lifeline.py  a command that dies with the process that started it, however that process ends; free ports
"""
