"""Spark, started and stopped: its session, properties and JVM.

conf.py           Spark properties of a job (pure)
home.py           a SPARK_HOME for masters on this machine
java.py           this machine's Java, and the folder where files are kept that any job may use again
jvm.py            Spark's JVM as a process of ours: it starts in the background, and can be ended at any moment
jvmarchive.py     Spark's classes in the JVM's memory format
jvmoptions.py     the JVM's options for the archive of Spark's classes (`deploy.spark.jvmarchive`), if it was written
killed.py         how a process ended, in words, and what to do about it
killedworkers.py  warns of Python workers that were killed; part of the daemon
planners.py       ends the processes that Spark has started to plan a query
pythondaemon.py   Spark's worker daemon, with everything that our workers need imported before it forks them
session.py        the Spark session of a job
"""
