"""A small C library beside confluent-kafka, for what would otherwise make Python objects for each record.

build.py    compiles the library, with `cc` or `ziglang`
columns.py  Arrow columns as C reads them, and what it decides about one (pure)
json.py     fields of JSON texts, and times as texts (pure)
library.py  finds and loads the library (pure)
rdkafka.py  the functions of the librdkafka that confluent-kafka has loaded, for Python and for C

The folder `c` is the library:

    json.c      whether texts are JSON, and where their fields are
    json_text.c what those fields hold, as text
    times.c     times as texts                    text.c      texts made of pieces, one per row
    records.c   records as columns that grow      produce.c   the loop over rows that are produced
    arrow.c     hands them to pyarrow             plugin.c    which producers there are; counts their records
    fetch.c     the loop over records             columns.h   Arrow columns that are read
    bind.c      takes librdkafka's functions      buffer.c, utf8.c   memory that grows; whether bytes are UTF-8
    avro.c      whether bytes are Avro records

The library knows nothing of Python and is linked against no librdkafka, so one build serves every Python of a platform.
It is loaded with `ctypes`, which releases the interpreter's lock during each call. It calls the functions of the
librdkafka that confluent-kafka has loaded (`ctypes.CDLL(confluent_kafka.cimpl.__file__)`), public API only. Without
the library no record can be read or written (`LibraryMissing`).
"""
