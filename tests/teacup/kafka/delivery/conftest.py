"""What the tests of delivery share."""

from __future__ import annotations

import pytest

from teacup.kafka.delivery.fencing import OutputBucket


@pytest.fixture
def bucket(topic_factory):
    topic = topic_factory(1, prefix="out")
    return OutputBucket(f"job-{topic}", 0, topic)
