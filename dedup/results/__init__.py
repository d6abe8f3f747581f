"""Where recent results are read back from.

kafka.py     recent results from a Kafka topic
lake.py      recent results from a folder of Parquet files, as a job appends them to a lake
protocol.py  recent results of an output, as the deduplicator reads them (pure)
"""
