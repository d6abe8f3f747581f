"""The edge to Spark that `joins` and `dedup` share; it knows nothing of them.

reader.py      `StreamReader`: what every streaming reader does, whatever it plans
control.py     `ReaderControl`: how one is controlled from outside
listedends.py  `ListedEnds`: up to where a run under `availableNow` reads          (pure)
source.py      the data source class of a reader, and the stage that it carries to the executors
checkpoint.py  `SparkLogs`: which batches a checkpoint has planned and committed, and where each of them ends
crossing.py    how an error of ours crosses Spark, with the exit code of its class                (pure)
cutoff.py      a planning process ends without a traceback once the JVM has closed its socket
summaries.py   what tasks report, and how that crosses the JVM                                    (pure)
workerlog.py   log lines, in the driver and in the processes that Spark starts

Public: nothing. Nothing is imported here, because reading a checkpoint needs no Spark.
"""
