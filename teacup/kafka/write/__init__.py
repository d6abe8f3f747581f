"""Arrow batches to topics.

clients.py          real clients: confluent-kafka's, whose producers C knows, too
native_producer.py  confluent-kafka's producer, as C knows it: rows of Arrow columns go straight into librdkafka
producer.py         a producer as writing and delivery need it, and the wait for its queue
templates.py        texts that are made of pieces, one text per row (pure)
topic_limits.py     the limits of output topics, asked once by each process, and producer properties that respect them
writer.py           writes Arrow batches to topics
"""
