"""The process beside the driver that plans a query's batches, as Spark starts it.

connection.py  ends it with its connection to the JVM, whatever it does; if it gets none, nothing is shown of it
forks.py       planners of several queries, forked from one process
notes.py       what it tells the driver besides plans: what it waits for
"""
