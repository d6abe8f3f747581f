"""The edge to Spark: its session and JVM, streaming readers, checkpoints, errors that cross the JVM.

checkpoint.py     `SparkLogs`: which batches a checkpoint has planned and committed, and where each of them ends
class_archive.py  Spark's classes in the JVM's memory format
conf.py           Spark properties of a job (pure)
crossing.py       how an error of ours crosses Spark, with the exit code of its class (pure)
errors.py            what starting or keeping Spark refuses or gives up (pure)
java.py           this machine's Java, and the folder where files are kept that any job may use again
jvm.py            Spark's JVM as a process of ours: it starts in the background, and can be ended at any moment
session.py        the Spark session of a job
source.py         the data source class of a reader, and the stage that it carries to the executors
stream_reader.py  `StreamReader`: what every streaming reader does, whatever it plans
worker_daemon.py  Spark's worker daemon, with everything that our workers need imported before it forks them

Public: nothing. Nothing is imported here, because reading a checkpoint needs no Spark.
"""
