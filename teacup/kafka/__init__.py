"""The only package that talks to Kafka.

delivery/    batches of rows in Kafka transactions
log/         a topic as a log: its ends, the offset of a time, what it has lost, committed positions
native/      a C library that makes no Python object for each record
read/        ranges of a partition as Arrow batches
records/     what is in a record: its time, its join key, its value as JSON, whatever the format
write/       Arrow batches to topics
client.py    librdkafka: configurations, clients, its messages, and the errors that follow from them
errors.py    what can go wrong between us and Kafka (pure)
grants.py    what a user needs at the brokers, and the commands that grant it (pure)
headers.py   the headers that Teacup adds to records, and the reasons that it gives in them (pure)
rotation.py  gives clients whose login is in files the new login when it changes

Public: `teacup.kafka.read.range_reader.RangeReader`, `teacup.kafka.log.broker_log.BrokerLog`,
`teacup.kafka.log.groups.GroupOffsets`, `teacup.kafka.delivery.delivery`, `teacup.kafka.errors`; the rest is internal.
"""
