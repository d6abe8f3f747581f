"""The log of a side's topic, as every part that searches it by time opens it.

What counts as a valid time (`outliers`, `max_future_skew`), and where it is, comes from the spec alone. So the planner,
the checks before a start, and what looks at a job afterwards find the same blocks of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from joins.read.deserialize import times_as_json
from joins.spec import Side
from teacup.kafka.client import committed_only
from teacup.kafka.log.broker_log import BrokerLog


class SpecOfSides(Protocol):
    """A join, or a feeder: what it says of reading its topics."""

    @property
    def kafka(self) -> Mapping[str, str]: ...

    @property
    def registry(self) -> Mapping[str, str]: ...

    @property
    def outliers(self) -> int: ...

    @property
    def max_future_skew_ms(self) -> int: ...


def side_log(spec: SpecOfSides, side: Side) -> BrokerLog:
    """Opens the topic of a side; what is in aborted transactions is not read."""
    return BrokerLog(
        side.topic,
        committed_only(spec.kafka),
        side.time_of,
        outliers=spec.outliers,
        max_future_skew_ms=spec.max_future_skew_ms,
        as_json=times_as_json(side, spec.registry),
    )
