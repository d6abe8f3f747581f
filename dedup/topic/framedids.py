"""Whether ids can be found in the values of a topic: those with the frame of a schema registry are not decoded here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from dedup.errors import DedupConfigInvalid
from dedup.identity import Identity
from kafkaio.brokerlog import BrokerLog
from kafkaio.client import committed_only
from kafkaio.pointreader import PointReader

SAMPLE = 20
FRAMED = b"\x00"
"""No JSON text begins with it; a value with the frame does."""


def check_values(topic: str, identity: Identity, kafka: Mapping[str, str]) -> None:
    """Raises `DedupConfigInvalid` if the id is in JSON values, and the newest values are Avro or Protobuf.

    Raises `KafkaIOError`.
    """
    if identity.key is None or not identity.key.paths:
        return
    with closing(BrokerLog(topic, kafka)) as source, closing(PointReader(topic, committed_only(kafka))) as reader:
        spans = {p: (max(ends.start, ends.stable - SAMPLE), ends.stable) for p, ends in source.ends().items()}
        taken = reader.take(spans, SAMPLE).values()
        values = [record.value for records in taken for record in records if record.value is not None]
    if values and all(value.startswith(FRAMED) for value in values):
        raise DedupConfigInvalid(
            f"id: {identity.key} is a field of JSON values, and those of {topic!r} have a schema registry's frame "
            "(Avro or Protobuf), which this kind of job does not decode: no record would have an id. Give `key` or "
            "`header:NAME`"
        )
