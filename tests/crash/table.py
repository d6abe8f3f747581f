"""A lookup join with a table that changes, and its feeder: versions of right's keys, one in five of them a delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from joins.spec import Policy
from tests.crash.jobs import LookupWorld
from tests.crash.traffic import Traffic, expected_rows
from tests.support.simulatedtable import table_spec

FOR_EVER: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}


class TableTraffic(Traffic):
    """Right's records without a value are deletes; left has a value always."""

    def value(self, side: str, number: int) -> bytes | None:
        return None if side == "right" and self.numbers.random() < 0.2 else super().value(side, number)

    def expected(self, policy: Policy = Policy.LAST, after_ms: int = 0) -> Counter[tuple[str, str | None]]:
        return expected_rows(self, self.right, table_spec(policy=policy, after_ms=after_ms))


class TableWorld(LookupWorld):
    """The parts of a lookup join with a table that changes."""

    writes = TableTraffic
    keep = "versions"
    of_right: Mapping[str, Any] = {"tombstones": "delete"}
    of_join: Mapping[str, Any] = {"before": "unlimited", "policy": "last"}
