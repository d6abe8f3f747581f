"""Ids in values that are not decoded."""

from __future__ import annotations

import pytest

from dedup.errors import DedupConfigInvalid
from dedup.identity import Identity
from dedup.topic.source import check_values
from teacup.kafka.records.record import KeyOf
from tests.conftest import TopicFactory
from tests.support.sparkjoin import Put, produce


def test_an_id_in_avro_values_is_refused(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """It would be found in no record, and nothing be deduplicated; another id is fine, and so are JSON values."""
    framed, plain = topic_factory(1), topic_factory(1)
    produce(kafka, framed, [Put(0, b"k", 1, b"\x00\x00\x00\x00\x01\x02a"), Put(0, b"k", 1, None)])
    produce(kafka, plain, [Put(0, b"k", 1, b"\x00"), Put(0, b"k", 1, b'{"id": 1}')])
    by_field = Identity(key=KeyOf.of("$.id"))

    check_values(plain, by_field, kafka)
    check_values(framed, Identity(key=KeyOf()), kafka)
    with pytest.raises(DedupConfigInvalid, match=rf"id: \$\.id .*'{framed}'"):
        check_values(framed, by_field, kafka)
