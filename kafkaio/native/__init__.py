"""A small C library beside confluent-kafka: what would otherwise make Python objects for each record.

build.py        compiles the library, with `cc` or `ziglang`
columns.py      the buffers of Arrow columns, as C takes them (pure)
consumer.py     a consumer of our own, on the librdkafka that confluent-kafka has loaded
json.py         whether texts are JSON (pure)
library.py      finds and loads the library, or says why there is none (pure)
rdkafka.py      the functions of that librdkafka, for Python and for C
recordfetch.py  records of a consumer, made into Arrow columns in C

The folder `c` is the library: json.c decides whether texts are JSON; records.c holds records as columns, which arrow.c
hands to pyarrow; fetch.c is the loop over records; bind.c takes librdkafka's functions; buffer.c is memory that grows.

The library knows nothing of Python and is linked against no librdkafka, so one build serves every Python of a platform.
It is loaded with `ctypes`, which releases the interpreter's lock during each call. The functions of librdkafka that it
calls are those that confluent-kafka has loaded (`ctypes.CDLL(confluent_kafka.cimpl.__file__)`), public API only. Where
the library is missing, or `TEACUP_NATIVE=off` is set, the Python code does the same work more slowly.
"""
