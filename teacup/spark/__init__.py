"""The edge to Spark: its session and JVM, streaming readers, checkpoints, errors that cross the JVM.

checkpoint.py     `SparkLogs`: which batches a checkpoint has planned and committed, and where each of them ends
class_archive.py  Spark's classes in the JVM's memory format
conf.py           Spark properties of a job (pure)
crossing.py       how an error of ours crosses Spark, with the exit code of its class (pure)
errors.py         what starting or keeping Spark refuses or gives up (pure)
java.py           this machine's Java, and Spark's JVM as a process of ours
session.py        the Spark session of a job
stream_reader.py  `StreamReader`: what every streaming reader does, whatever it plans, and its data source class
worker_daemon.py  Spark's worker daemon, with everything that our workers need imported before it forks them

Public: nothing. Nothing is imported here, because reading a checkpoint needs no Spark.
"""
