"""Ranges of a partition as Arrow batches.

consumer.py      a consumer of our own, on the librdkafka of confluent-kafka
fetch.py         its records as columns, made in C
range_reader.py  reads ranges of a partition as Arrow batches
"""
