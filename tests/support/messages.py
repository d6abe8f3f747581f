"""A range of a partition by confluent-kafka's messages, made into columns in Python: an oracle for what C reads.

confluent-kafka shows no header of a record that has a header whose name is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition

from teacup.kafka import client
from teacup.kafka.headers import UNREADABLE
from teacup.kafka.read.fetch import HEADERS, SCHEMA


def read_messages(topic: str, kafka: Mapping[str, str], start: int, end: int) -> pa.RecordBatch:
    """The committed records of partition 0 within [start, end); there is at least one."""
    consumer = client.consumer(kafka, {}, lambda _: None)
    consumer.assign([TopicPartition(topic, 0, start)])
    messages: list[Any] = []
    while (message := consumer.poll(30)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        if message.offset() >= end:
            break
        messages.append(message)
    found = to_arrow(0, messages)
    consumer.close()
    return found


def to_arrow(partition: int, messages: list[Any]) -> pa.RecordBatch:
    """Returns messages of one partition in the schema `SCHEMA`; at least one is given, none with an error."""
    count = len(messages)
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == count - 1:  # offsets ascend, so there are no gaps
        offsets = np.arange(first, last + 1, dtype=np.int64)
    else:
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count)
    columns = [
        _numbers(np.full(count, partition, np.int32), pa.int32()),
        _numbers(offsets, pa.int64()),
        _numbers(stamps[1::2].copy(), pa.int64()),
        _numbers(stamps[::2].astype(np.int8), pa.int8()),
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _headers(_listed(messages)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _numbers(values: np.typing.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Makes a column without a copy, and without importing pandas, as `pa.array` of an ndarray does."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _listed(messages: list[Any]) -> list[list[tuple[str, bytes | None]] | None]:
    """Returns the headers of each message, asked for once.

    For a name that it cannot decode confluent-kafka sets an error and returns a list with holes, as it does without an
    error when it is asked again. `map` looks for the error at each call. The interpreter's own calls may not, once they
    are fast: the error is then raised anywhere later.
    """
    found: list[list[tuple[str, bytes | None]] | None] = []
    one_by_one = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(one_by_one)  # type: ignore[arg-type]
        except (SystemError, UnicodeDecodeError):
            found.append([(UNREADABLE, b"headers")])
    return found


def _headers(headers: list[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    count = len(headers)
    if headers.count(None) == count:
        return pa.nulls(count, HEADERS)
    lengths = np.fromiter((len(pairs) if pairs else 0 for pairs in headers), np.int32, count)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = [pair for pairs in headers if pairs for pair in pairs]
    entries = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(HEADERS.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(offsets), entries, type=HEADERS, mask=pa.array(lengths == 0))
