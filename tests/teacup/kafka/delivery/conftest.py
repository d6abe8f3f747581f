"""What the tests of delivery share."""

from __future__ import annotations

import pytest

from teacup.kafka.delivery.fencing import OutputBucket


@pytest.fixture(scope="session")
def kafka(kafka: dict[str, str]) -> dict[str, str]:
    """With transactions that may stay open while a busy machine lets nobody go on."""
    return {**kafka, "transaction.timeout.ms": "60000"}


@pytest.fixture
def bucket(topic_factory):
    topic = topic_factory(1, prefix="out")
    return OutputBucket(f"job-{topic}", 0, topic)
