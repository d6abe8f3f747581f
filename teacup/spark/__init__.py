"""The edge to Spark: its session and JVM, streaming readers, checkpoints, errors that cross the JVM.

analysis.py         what Spark's analyser refuses, in one line
batches/            the batches of a job, carried out by a thread of its driver
checkpoint.py       `SparkLogs`: which batches a checkpoint has planned and committed, and where each of them ends
checkpoint_access.py  opening one, and why its file system does not let a job in
class_archive.py    Spark's classes in the JVM's memory format
cluster.py          what a session needs of a cluster: a master that answers, executors
conf.py             Spark properties of a job (pure)
errors.py           what starting or keeping Spark refuses or gives up (pure)
java.py             this machine's Java, and Spark's JVM as a process of ours
jvm_errors.py       what crosses Spark: errors of ours with their exit code, summaries of tasks (pure)
planner_notes.py    what a planner tells besides plans: what it waits for
session.py          the Spark session of a job
stream_reader.py    `StreamReader`: what every reader does, whatever it plans
stream_source.py    the data source of a query of the library, and the process in which Spark plans it
worker.py           which task a worker carries out, and whether it had the batch before
worker_daemon.py    Spark's worker daemon: imports what our workers need, counts them, warns of killed ones

Public: nothing. Nothing is imported here, because reading a checkpoint needs no Spark.
"""
