"""What audits of real jobs need: job files, and topics with records changed."""

from __future__ import annotations

from contextlib import closing

import yaml
from confluent_kafka import Producer

from tests.support.jobprocess import records
from tests.support.provenance import left_of


def written(folder, content):
    path = folder / "audited.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def copied(kafka, topic, to, change):
    """What is in a topic, changed, in another one: `change(number, record)` returns the records in its place."""
    with closing(_Producer(kafka)) as producer:
        for number, record in enumerate(records(kafka, topic)):
            for one in change(number, record):
                producer.put(to, one)


class _Producer:
    def __init__(self, kafka):
        self._producer = Producer({**kafka, "acks": "all"})

    def put(self, topic, record):
        headers = [(name, value) for name, value in record["headers"].items()]
        self._producer.produce(
            topic, record["value"], record["key"], partition=0, timestamp=record["time"], headers=headers
        )

    def close(self):
        assert self._producer.flush(60) == 0


def position(record):
    partition, offset = left_of(record["headers"]).split(":")
    return int(partition), int(offset)
