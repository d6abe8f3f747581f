"""The process beside the driver that plans a query's batches, as Spark starts it.

connection.py  it ends with its connection to the JVM, whatever it does; and without one, nothing is shown of it
forks.py       planners of several queries, forked from one process
notes.py       what it tells the driver beside plans: what it waits for
"""
