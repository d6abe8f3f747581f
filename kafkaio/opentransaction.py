"""Waiting for open transactions: what is behind the first record of one cannot be read before it ends.

It ends when its producer commits or aborts it, or with its time-out, `transaction.timeout.ms` of the producer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from kafkaio.errors import KafkaUnavailable
from kafkaio.every import Every
from kafkaio.topiclog import Ends, TopicLog

log = logging.getLogger("teacup.kafkaio.opentransaction")

SAY_EVERY_S = 5.0
_POLL_S = 0.05


def wait_until_readable(topic: TopicLog, listed: Mapping[int, Ends], timeout_s: float) -> dict[int, Ends]:
    """Waits until everything that was below the high watermarks in `listed` can be read. Returns the ends then.

    Raises `KafkaUnavailable` if that takes longer than `timeout_s`.
    """
    started, report = time.monotonic(), Every(SAY_EVERY_S)
    ends = dict(listed)
    while hidden := [p for p, known in listed.items() if ends[p].stable < known.high]:
        if time.monotonic() - started > timeout_s:
            raise KafkaUnavailable(
                f"an open transaction in partitions {hidden} of {topic.topic!r} has hidden the records behind it for "
                f"{timeout_s:g} s; what is needed may be among them. It ends with its time-out "
                "(`transaction.timeout.ms` of its producer): retry then, or end its producer"
            )
        if report.due():
            log.warning("waits for an open transaction in partitions %s of %s", hidden, topic.topic)
        time.sleep(_POLL_S)
        ends = {p: now for p, now in topic.ends().items() if p in listed}
    return ends
