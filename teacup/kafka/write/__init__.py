"""Arrow batches to topics.

drain.py            waits for a producer's queue to get shorter, without keeping librdkafka's threads busy
native_producer.py  confluent-kafka's producer, as C knows it: rows of Arrow columns go straight into librdkafka
templates.py        texts that are made of pieces, one text per row (pure)
topic_limits.py     the limits of output topics, asked once by each process, and producer properties that respect them
writer.py           writes Arrow batches to topics, in C where that can be
"""
