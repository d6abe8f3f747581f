"""The only package that talks to Kafka: ranges to Arrow, times to offsets, positions, delivery.

delivery/           batches of rows in Kafka transactions
native/             a C library that makes no Python object for each record
avrojson.py         Avro records as JSON text, whole columns at a time
avroschemas.py      what can be known of an Avro schema before a record is read (pure)
avroskip.py         which values are Avro records (pure)
blocksearch.py      finds where a time begins among records that are not sorted by time, some of them wrong (pure)
bounded.py          calls in threads of their own, waited for a bounded time: librdkafka does not always have one
brokerlog.py        one topic of a real broker, as a planner sees it
checkedjson.py      JSON with a checksum, for small files that a job reads again later (pure)
client.py           librdkafka configurations
protocols.py        the part of a Kafka client that delivery needs
clock.py            a wall clock that is trusted only while something else agrees with it
duck.py             DuckDB for work on JSON, in memory
drain.py            waits for a producer's queue to get shorter, without keeping librdkafka's threads busy
errors.py           what can go wrong between us and Kafka (pure)
eventtime.py        the event time of records (pure)
every.py            what is done at most once in a period
exitcode.py         how a command ends (pure)
fairshare.py        how many records of each partition, or bucket, a batch reads when not all of them fit (pure)
fetch.py            what a range reader needs of a consumer, whichever makes the records into columns
fieldtypes.py       the fields of a description, coerced or refused by their declared types (pure)
framed.py           values that name their schema, as JSON text (pure)
gcpause.py          pauses Python's garbage collector while many short-lived objects exist
groupaccess.py      finds out whether the broker refuses us access to consumer groups, when they cannot be read and no
                    error says why
groups.py           committed positions of a consumer group, without being a member of it
headers.py          the headers that Teacup adds to the records it writes (pure)
invalid.py          the base of errors that mean: this configuration cannot work (pure)
jsonfields.py       fields of JSON values, a whole batch in one query (pure)
kept.py             what of a record is kept where records are stored (pure)
lookback.py         what lies before the offset at which a time was found, and has reached the time (pure)
losses.py           whether a partition still holds what a reader needs of it (pure)
messagefetch.py     records as confluent-kafka's messages, where the C library is not there
messages.py         librdkafka's messages as Arrow columns
now.py              the two clocks of this machine, in milliseconds
onfirstuse.py       what a package exports, imported on first use
opentransaction.py  waiting for open transactions
perprocess.py       a few clients, kept open in each process
pointreader.py      reads single records at given offsets, of many partitions at once, for searches and collectors
producible.py       what a topic accepts, and what happens to a record that it would refuse (pure)
protojson.py        Protobuf messages as JSON text
rangereader.py      reads ranges of a partition as Arrow batches
reachable.py        whether the brokers answer at all, asked before anything else
reasons.py          why a record or a row is where it is (pure)
recordkey.py        the join key of records (pure)
registry.py         schemas by their ids, from a schema registry
rounds.py           runs generators that ask for look-ups; one call answers what all of them ask in a round (pure)
said.py             what librdkafka says, without its guess that a broker is old
secrets.py          what is never shown: values of names, passwords in URLs (pure)
sparselog.py        logs the same line at most once a minute in each process; the next one says how many were
                    suppressed
strictjson.py       whether texts are JSON, exactly (pure)
texts.py            texts that are made of pieces, one text per row (pure)
times.py            times and their bounds, and how people see one (pure)
topicaccess.py      topics as the brokers describe them to this user
topiclimits.py      the limits of output topics, asked once by each process, and producer properties that respect them
topiclog.py         what a reader that plans its own ranges must know of a topic (pure)
truncation.py       whether a partition still holds what it held up to an offset, asked of its leader
utf8.py             bytes as text, where they are UTF-8 (pure)
withoutpandas.py    Arrow without pandas
writer.py           writes Arrow batches to topics, in C where that can be

Public: `kafkaio.rangereader.RangeReader`, `kafkaio.brokerlog.BrokerLog`, `kafkaio.groups.GroupOffsets`,
`kafkaio.delivery.delivery`, `kafkaio.errors`; the rest is internal.
"""
