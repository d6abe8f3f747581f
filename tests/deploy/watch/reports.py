"""A job and its batches, as those that watch it are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.watch.concerns import Concern
from deploy.watch.listener import JobDescription
from deploy.watch.measures import Measured

ABOUT = JobDescription(
    name="clicks", kind="window-join", version="1.2", does="joins", sides={"left-topic": "left", "right-topic": "right"}
)


@dataclass
class Batch:
    """A report with nothing behind it."""

    records: int = 10
    events: list[str] = field(default_factory=list)
    concerns: Sequence[Concern] = ()
    seconds: float = 0.1
    numbers: list[Measured] = field(default_factory=list)

    def usual(self) -> list[str]:
        return ["batch 7", f"read {self.records}"]

    def rare(self) -> list[str]:
        return self.events

    def for_machines(self) -> dict[str, Any]:
        return {"event": "batch", "read": self.records}

    def samples(self) -> list[Measured]:
        return self.numbers


class Clock:
    """Stops until it is moved."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s
