"""Records on their way through a delivery, counted: what is committed must be what was handed over."""

from __future__ import annotations

from collections.abc import Mapping

from joins.rows.outgoing import Outgoing
from kafkaio.delivery.delivery import Delivery
from kafkaio.delivery.receipt import Standing


class Writing:
    """Writes one batch of one bucket."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._written: dict[str, int] = {}  # by topic, since the last commit

    def standing(self) -> Standing:
        """Returns what of the batch is already in the output; those rows must not be written again."""
        return self._delivery.standing()

    def write(self, topic: str, out: Outgoing) -> int:
        """Hands over records; returns how many need nothing more."""
        count = self._delivery.write(topic, out.keys, out.values, out.headers, out.times, out.size)
        self._written[topic] = self._written.get(topic, 0) + count
        return count

    def part_is_full(self, *, gap: bool) -> bool:
        """Returns whether to `commit` now although rows will follow; gap: they may follow much later."""
        return self._delivery.part_is_full(gap=gap)

    def commit(self, rows: int, *, done: bool, reached: str) -> Mapping[str, int]:
        """Commits like `Delivery.commit`."""
        sent = self._delivery.commit(rows, self._written, done=done, reached=reached)
        self._written = {}
        return sent

    def abandon(self) -> None:
        """Gives up after a failure: nothing of the open part may count."""
        self._delivery.abandon()
