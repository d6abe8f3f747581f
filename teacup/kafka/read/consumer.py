"""A consumer of our own, on the librdkafka that confluent-kafka has loaded.

A consumer of confluent-kafka's must not be polled from C: its callbacks, such as that for a missing topic, expect to be
within a call of confluent-kafka, and abort the process otherwise.

librdkafka calls nothing back from its own threads: errors, log lines and requests for a token wait in the consumer's
queue (`log.queue`) until the thread that takes records handles them. The callbacks live as long as the consumer.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from teacup.base.now import wall_ms
from teacup.kafka import client
from teacup.kafka.native.library import INT, INT64, POINTER, TEXT
from teacup.kafka.native.rdkafka import Functions
from teacup.kafka.rotation import TOKEN, follow, rotates, token_now

_CONSUMER_KIND = 1  # RD_KAFKA_CONSUMER
_REASON_BYTES = 512
_LEVELS = [logging.CRITICAL] * 3 + [logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG]
"""Python's levels for syslog's 0 to 7, as in confluent-kafka."""


class _Topic(ctypes.Structure):
    """`rd_kafka_metadata_topic`."""

    _fields_ = (("topic", TEXT), ("partition_count", INT), ("partitions", POINTER), ("err", INT))


class _Metadata(ctypes.Structure):
    """The beginning of `rd_kafka_metadata`."""

    _fields_ = (
        *(("broker_count", INT), ("brokers", POINTER)),
        *(("topic_count", INT), ("topics", ctypes.POINTER(_Topic))),
    )


_ErrorCallback = ctypes.CFUNCTYPE(None, POINTER, INT, TEXT, POINTER)
_TokenCallback = ctypes.CFUNCTYPE(None, POINTER, TEXT, POINTER)
_LogCallback = ctypes.CFUNCTYPE(None, POINTER, INT, TEXT, TEXT)


class OwnConsumer:
    """A consumer that is assigned to some partitions and joins no group.

    Records arrive in `queue`, unless their partition has a queue of its own (`queue_of`). What is about the whole
    client always does.

    handle, queue   pointers to librdkafka's objects, valid until `close`
    """

    def __init__(
        self,
        functions: Functions,
        kafka: Mapping[str, str],
        tuning: Mapping[str, Any],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        """Raises `ConfigError` if librdkafka refuses a property."""
        self._kafka = functions.kafka
        self._process = os.getpid()
        self._closed, self._closing = True, threading.Lock()
        self._callbacks = (
            _ErrorCallback(lambda _handle, code, reason, _: on_error(KafkaError(code, _text(reason)))),
            _LogCallback(self._log),
            _TokenCallback(lambda handle, _config, _: self._set_token(handle)),
        )
        self._token = kafka.get(TOKEN)
        reason = ctypes.create_string_buffer(_REASON_BYTES)
        conf = self._kafka.rd_kafka_conf_new()
        properties = {**client.consumer_properties(kafka, tuning), "log.queue": True}
        properties.pop(TOKEN, None)
        for name, value in properties.items():
            written = str(value).lower() if isinstance(value, bool) else str(value)
            if self._kafka.rd_kafka_conf_set(conf, name.encode(), written.encode(), reason, _REASON_BYTES):
                self._kafka.rd_kafka_conf_destroy(conf)
                raise client.refused(kafka, _text(reason.value))
        self._kafka.rd_kafka_conf_set_error_cb(conf, self._callbacks[0])
        self._kafka.rd_kafka_conf_set_log_cb(conf, self._callbacks[1])
        if self._token is not None:
            self._kafka.rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, self._callbacks[2])
        self.handle = self._kafka.rd_kafka_new(_CONSUMER_KIND, conf, reason, _REASON_BYTES)
        if not self.handle:
            self._kafka.rd_kafka_conf_destroy(conf)
            raise client.refused(kafka, _text(reason.value))
        self._closed = False
        self._kafka.rd_kafka_poll_set_consumer(self.handle)
        self._kafka.rd_kafka_set_log_queue(self.handle, None)
        self.queue = self._kafka.rd_kafka_queue_get_consumer(self.handle)
        self._queues: dict[int, int] = {}
        if self._token is not None:
            self._set_token(self.handle)  # nobody takes records yet, so no request for a token would be handled
        if rotates(kafka):
            follow(self, kafka, properties)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Takes a new login for connections opened from now on; any thread may call it."""
        with self._closing:
            if not self._closed:
                error = self._kafka.rd_kafka_sasl_set_credentials(self.handle, username.encode(), password.encode())
                if error:
                    self._kafka.rd_kafka_error_destroy(error)
                    raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    def _set_token(self, handle: int) -> None:
        """Gives librdkafka the token that is in the file now; it asks again before that expires."""
        assert self._token is not None
        reason = ctypes.create_string_buffer(_REASON_BYTES)
        try:
            token, until_s = token_now(self._token, wall_ms() / 1000)
            code = self._kafka.rd_kafka_oauthbearer_set_token(
                handle, token.encode(), int(1000 * until_s), b"", None, 0, reason, _REASON_BYTES
            )
            why = _text(reason.value) if code else ""
        except ValueError as error:  # it is being replaced, or has expired
            why = str(error)
        if why:
            self._kafka.rd_kafka_oauthbearer_set_token_failure(handle, why.encode())

    def learn(self, topic: str, timeout_s: float) -> KafkaError | None:
        """Fetches the topic's leaders, as `client.learn`."""
        metadata = POINTER()
        name = self._kafka.rd_kafka_topic_new(self.handle, topic.encode(), None)
        if not name:
            return None  # no topic can have this name; assigning it will say so
        error = self._kafka.rd_kafka_metadata(self.handle, 0, name, ctypes.byref(metadata), int(1_000 * timeout_s))
        code = 0
        if metadata:
            topics = ctypes.cast(metadata, ctypes.POINTER(_Metadata)).contents
            code = topics.topics[0].err if topics.topic_count else 0
            self._kafka.rd_kafka_metadata_destroy(metadata)
        self._kafka.rd_kafka_topic_destroy(name)
        if error:
            client.log.debug("the leaders of %s are not known yet: %s", topic, KafkaError(error).str())
        return KafkaError(code) if client.lacks_acl(code) else None

    def queue_of(self, topic: str, partition: int) -> int:
        """Returns a pointer to the partition's own queue, in which its records arrive from the next `assign` on."""
        if partition not in self._queues:
            queue = self._kafka.rd_kafka_queue_get_partition(self.handle, topic.encode(), partition)
            assert queue, "librdkafka has one for each partition"
            self._kafka.rd_kafka_queue_forward(queue, None)
            self._queues[partition] = queue
        return self._queues[partition]

    def assign(self, topic: str, starts: Mapping[int, int]) -> None:
        """Fetches from an offset of each partition on, instead of what was assigned before. Raises `KafkaException`."""
        wanted = self._kafka.rd_kafka_topic_partition_list_new(len(starts))
        for partition, offset in starts.items():
            self._kafka.rd_kafka_topic_partition_list_add(wanted, topic.encode(), partition)
            self._kafka.rd_kafka_topic_partition_list_set_offset(wanted, topic.encode(), partition, offset)
        error = self._kafka.rd_kafka_assign(self.handle, wanted)
        self._kafka.rd_kafka_topic_partition_list_destroy(wanted)
        _check(error)

    def unassign(self) -> None:
        """Fetches nothing. Raises `KafkaException`."""
        _check(self._kafka.rd_kafka_assign(self.handle, None))

    def ends(self, topic: str, partition: int, timeout_s: float) -> tuple[int, int]:
        """Asks for the partition's first offset and its high watermark. Raises `KafkaException`."""
        low, high = INT64(), INT64()
        _check(
            self._kafka.rd_kafka_query_watermark_offsets(
                self.handle, topic.encode(), partition, ctypes.byref(low), ctypes.byref(high), int(1_000 * timeout_s)
            )
        )
        return low.value, high.value

    def close(self) -> None:
        """Closes it. Everything taken from the queue must have been destroyed before."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        for queue in self._queues.values():
            self._kafka.rd_kafka_queue_destroy(queue)
        self._kafka.rd_kafka_consumer_close(self.handle)
        self._kafka.rd_kafka_queue_destroy(self.queue)
        self._kafka.rd_kafka_destroy(self.handle)

    @property
    def mine(self) -> bool:
        """Whether this process made it: a forked child has none of its threads and must leave it alone."""
        return self._process == os.getpid() and not sys.is_finalizing()

    def _log(self, handle: int, level: int, facility: bytes, line: bytes) -> None:
        name = _text(self._kafka.rd_kafka_name(handle)) if handle else ""
        client.librdkafka.log(_LEVELS[min(max(level, 0), 7)], "%s [%s] %s", _text(facility), name, _text(line))


def _check(code: int) -> None:
    if code:
        raise KafkaException(KafkaError(code))


def _text(from_librdkafka: bytes | None) -> str:
    return (from_librdkafka or b"").decode(errors="replace")
