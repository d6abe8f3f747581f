"""The edge to Spark: its session and JVM, streaming readers, checkpoints, errors that cross the JVM.

analysis.py       what Spark's analyser refuses, in one line
batch_log.py      `BatchLog`: writes which batches are planned and committed, as Structured Streaming does
batch_loop.py     `BatchLoop`: carries out a reader's batches, each as a plain Spark job
checkpoint.py     `SparkLogs`: which batches a checkpoint has planned and committed, and where each of them ends
class_archive.py  Spark's classes in the JVM's memory format
one_row.py        a stream with one row, which warms Spark up without any topic
cluster/          what a session needs of a cluster: a master that answers, executors
conf.py           Spark properties of a job (pure)
jvm_errors.py       what crosses Spark: errors of ours with their exit code, summaries of tasks (pure)
errors.py         what starting or keeping Spark refuses or gives up (pure)
java.py           this machine's Java, and Spark's JVM as a process of ours
planner/          the process that plans the batches of a streaming query
session.py        the Spark session of a job
stream_reader.py  `StreamReader`: what every streaming reader does, whatever it plans, and its data source class
task.py           which attempt of which task of which batch a worker carries out
worker_affinity.py          gives a small batch to the worker that had the batch before
worker_daemon.py  Spark's worker daemon: imports what our workers need, counts them, warns of killed ones

Public: nothing. Nothing is imported here, because reading a checkpoint needs no Spark.
"""
