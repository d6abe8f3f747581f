"""Opens the log of a side's topic for searches by time.

What counts as a valid time (`outliers`, `max_future_skew`), and where it is, comes from the spec alone. So the planner,
the checks before a start, and later looks at a job find the same blocks of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from joins.read.deserialize import times_as_json
from joins.spec import Side
from teacup.kafka.client import committed_only
from teacup.kafka.log.broker_log import BrokerLog


class SpecOfSides(Protocol):
    """What a join or a feeder says about reading its topics."""

    @property
    def kafka(self) -> Mapping[str, str]: ...

    @property
    def registry(self) -> Mapping[str, str]: ...

    @property
    def outliers(self) -> int: ...

    @property
    def max_future_skew_ms(self) -> int: ...


def side_log(spec: SpecOfSides, side: Side) -> BrokerLog:
    """Opens the topic of a side, without records of aborted transactions."""
    return BrokerLog(
        side.topic,
        committed_only(spec.kafka),
        side.time_of,
        outliers=spec.outliers,
        max_future_skew_ms=spec.max_future_skew_ms,
        as_json=times_as_json(side, spec.registry),
    )
