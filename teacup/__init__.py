"""The ground that joins, dedup, datadelay and deploy stand on.

base/     what has nothing to do with Kafka, Spark or HTTP: clocks, errors, logs, fields, configuration files
http/     what the HTTP servers and their clients share: tokens, limits, problems, the socket
kafka/    the only package that talks to Kafka
spark/    the edge to Spark: its session and JVM, streaming readers, checkpoints, errors that cross the JVM
storage/  items by key: API, client, back ends

Public: `teacup.kafka.read.range_reader.RangeReader`, `teacup.kafka.log.broker_log.BrokerLog`,
`teacup.kafka.log.groups.GroupOffsets`, `teacup.kafka.delivery.delivery`, `teacup.kafka.errors`;
`teacup.storage.client.StorageClient`, `teacup.storage.client.Answered`,
`teacup.storage.client.StorageKeyValue`, `teacup.storage.codecs.json.JsonCodec`,
`teacup.storage.codecs.json.NamespaceBody`, `teacup.storage.model`, `teacup.storage.errors`, and the command `teacup
storage`. The rest is internal.
"""
