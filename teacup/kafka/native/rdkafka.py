"""The functions of the librdkafka that confluent-kafka has loaded, for Python and for the C library.

Two copies of librdkafka in one process would mean two of everything, so confluent-kafka's is the only one. It is loaded
with its extension module, through which its symbols are found.
"""

from __future__ import annotations

import ctypes
from functools import cache

from confluent_kafka import cimpl

from teacup.kafka.errors import LibraryMissing
from teacup.kafka.native import library
from teacup.kafka.native.library import INT, INT32, INT64, POINTER, TEXT

_SIGNATURES: library.Signatures = {
    "rd_kafka_conf_new": (POINTER, ()),
    "rd_kafka_conf_set": (INT, (POINTER, TEXT, TEXT, TEXT, ctypes.c_size_t)),
    "rd_kafka_conf_set_error_cb": (None, (POINTER, POINTER)),
    "rd_kafka_conf_set_log_cb": (None, (POINTER, POINTER)),
    "rd_kafka_conf_destroy": (None, (POINTER,)),
    "rd_kafka_new": (POINTER, (INT, POINTER, TEXT, ctypes.c_size_t)),
    "rd_kafka_name": (TEXT, (POINTER,)),
    "rd_kafka_set_log_queue": (INT, (POINTER, POINTER)),
    "rd_kafka_poll_set_consumer": (INT, (POINTER,)),
    "rd_kafka_queue_get_consumer": (POINTER, (POINTER,)),
    "rd_kafka_queue_get_partition": (POINTER, (POINTER, TEXT, INT32)),
    "rd_kafka_queue_forward": (None, (POINTER, POINTER)),
    "rd_kafka_queue_destroy": (None, (POINTER,)),
    "rd_kafka_topic_partition_list_new": (POINTER, (INT,)),
    "rd_kafka_topic_partition_list_add": (POINTER, (POINTER, TEXT, INT32)),
    "rd_kafka_topic_partition_list_set_offset": (INT, (POINTER, TEXT, INT32, INT64)),
    "rd_kafka_topic_partition_list_destroy": (None, (POINTER,)),
    "rd_kafka_assign": (INT, (POINTER, POINTER)),
    "rd_kafka_topic_new": (POINTER, (POINTER, TEXT, POINTER)),
    "rd_kafka_topic_destroy": (None, (POINTER,)),
    "rd_kafka_metadata": (INT, (POINTER, INT, POINTER, ctypes.POINTER(POINTER), INT)),
    "rd_kafka_metadata_destroy": (None, (POINTER,)),
    "rd_kafka_query_watermark_offsets": (
        INT,
        (POINTER, TEXT, INT32, ctypes.POINTER(INT64), ctypes.POINTER(INT64), INT),
    ),
    "rd_kafka_conf_set_oauthbearer_token_refresh_cb": (None, (POINTER, POINTER)),
    "rd_kafka_oauthbearer_set_token": (
        INT,
        (POINTER, TEXT, INT64, TEXT, POINTER, ctypes.c_size_t, TEXT, ctypes.c_size_t),
    ),
    "rd_kafka_oauthbearer_set_token_failure": (INT, (POINTER, TEXT)),
    "rd_kafka_sasl_set_credentials": (POINTER, (POINTER, TEXT, TEXT)),
    "rd_kafka_error_destroy": (None, (POINTER,)),
    "rd_kafka_consumer_close": (INT, (POINTER,)),
    "rd_kafka_destroy": (None, (POINTER,)),
}
"""The functions called from Python, as <rdkafka.h> declares them."""


class Functions:
    """The functions of both libraries.

    kafka    librdkafka's, as attributes (`kafka.rd_kafka_new`)
    teacup   the C library's (`teacup.tc_fetch_new`), bound to librdkafka's
    """

    def __init__(self, teacup: ctypes.CDLL) -> None:
        """Raises `AttributeError` if confluent-kafka's librdkafka lacks a function."""
        self.teacup = teacup
        self.kafka = ctypes.CDLL(cimpl.__file__)
        library.declare(self.kafka, _SIGNATURES)
        names = teacup.tc_names()
        count = next(at for at, name in enumerate(names) if name is None)
        addresses = [ctypes.cast(getattr(self.kafka, names[at].decode()), POINTER).value for at in range(count)]
        teacup.tc_bind((POINTER * count)(*addresses))


@cache
def bound() -> Functions:
    """Returns the functions. Raises `LibraryMissing`."""
    teacup = library.loaded()
    if ";" in teacup._name:
        raise LibraryMissing(
            f"librdkafka takes the path {teacup._name} for several: install it where there is no semicolon"
        )
    try:
        return Functions(teacup)
    except AttributeError as error:
        raise LibraryMissing(f"the librdkafka of confluent-kafka cannot be used: {error}") from error
