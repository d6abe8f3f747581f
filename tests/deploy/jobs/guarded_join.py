"""A join on a broker that grants nothing by default."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from teacup.base.now import wall_ms
from tests.support.guarded import Guarded
from tests.support.sparkjoin import Put, produce


def join(guarded: Guarded, user: dict[str, str], folder: Path) -> dict[str, Any]:
    """A join with all side outputs, and records for it."""
    left, right, out, late, dead = guarded.topics("left", "right", "out", "late", "dead", partitions=2)
    now = wall_ms() - 60_000
    for topic in (left, right):
        produce(guarded.plain, topic, [Put(i % 2, b"k%d" % i, now) for i in range(20)])
    return {
        "name": f"guarded-{uuid.uuid4().hex[:8]}",
        "kind": "window-join",
        "kafka": user,
        "left": {"topic": left},
        "right": {"topic": right},
        "join": {"before": "10m"},
        "output": {"topic": out},
        "topics": {"late": late, "dead_letter": dead},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": "available_now",
    }
