"""The page of complaints: a history of each is run here, as a live join over a simulated log, and gives what it says.

An entry of complaints.yaml is a whole test: `join` (the spec's keys; `disorder` of both sides), `left` and `right`
(records as `KEY TIME`, `KEY TIME at CLOCK` if it can be read later than its time; a list of lists is a topic with
partitions), what happens meanwhile (a `restart` on another machine, for so long `stopped`), and all that comes out:
`output`, and what is `late`, `unjoined`, `dead` and left in the `window`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from joins.errors import DataLoss
from joins.spec import JoinSpec, Side
from joins.testing.history import Event, History, TopicHistory
from joins.testing.simulation import Simulation
from teacup.base.times import duration_ms
from tests.support.making import joined

PAGE = (Path(__file__).parents[2] / "docs" / "complaints.md").read_text(encoding="utf-8")
ROWS = {row.split(" | ")[0].removeprefix("| "): row for row in PAGE.splitlines() if "](https://" in row}
COMPLAINTS: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("complaints.yaml").read_text(encoding="utf-8")
)
STEP_MS = 1_000


def spec_of(join: dict[str, Any]) -> JoinSpec:
    """Batches follow each other at once; a record proves by itself how far its topic is."""
    keys = dict(join)
    disorder = keys.pop("disorder", "0s")
    sides = {side: Side(topic=side, disorder=disorder) for side in ("left", "right")}
    return joined(name="complaint", outliers=0, watermark_every="1ms", **sides, **keys)


def partition_of(partition: int, records: list[str]) -> tuple[Event, ...]:
    """Appended when its time is, or later, because a log only grows."""
    appended_ms, events = 0, []
    for offset, record in enumerate(records):
        key, time, *at = record.split()
        appended_ms = max(appended_ms, duration_ms(at[1] if at else time))
        events.append(
            Event(
                partition=partition,
                offset=offset,
                time_ms=duration_ms(time),
                key=None if key == "null" else key.encode(),
                value=record.encode(),
                appended_ms=appended_ms,
                readable_ms=appended_ms,
            )
        )
    return tuple(events)


def topic_of(name: str, records: list[Any]) -> TopicHistory:
    partitions = records if records and isinstance(records[0], list) else [records]
    return TopicHistory(name, tuple(partition_of(p, events) for p, events in enumerate(partitions)))


def seconds(time_ms: int) -> str:
    """As the file writes them."""
    return f"{time_ms / 1_000:g}s"


class Live:
    """A run that looks every second from the start on; `written` has each row with the clock's time."""

    def __init__(self, complaint: dict[str, Any]) -> None:
        self.history = History(*(topic_of(side, complaint[side]) for side in ("left", "right")))
        self.simulation = Simulation(self.history, spec_of(complaint["join"]))
        self.written: list[str] = []

    def until(self, clock_ms: int) -> None:
        """Plans and carries out whatever may be read by then."""
        while self.simulation.clock.now_ms < clock_ms:
            self.simulation.clock.advance(STEP_MS)
            while self.simulation.admit():
                pass
            for row in self.simulation.run.results[len(self.written) :]:
                left = self.named("left", (row.left_partition, row.left_offset))
                other = row.outcome if row.right is None else f"with {self.named('right', row.right)}"
                reason = f" ({row.reason})" if row.reason not in (None, "no_candidate") else ""
                self.written.append(f"{left} {other}{reason} at {seconds(self.simulation.clock.now_ms)}")

    def named(self, side: str, position: tuple[int, int]) -> str:
        """As the file writes it."""
        event = getattr(self.history, side).partitions[position[0]][position[1]]
        return f"{'null' if event.key is None else event.key.decode()} {seconds(event.time_ms)}"


def outcome(complaint: dict[str, Any]) -> dict[str, Any]:
    """All that comes of it."""
    live = Live(complaint)
    if "restart" in complaint:
        live.until(duration_ms(complaint["restart"]))
        live.simulation.restart(lose_files=True)
        live.simulation.clock.advance(duration_ms(complaint["stopped"]))
    simulation = live.simulation
    live.until(live.history.end_ms + simulation.spec.span_ms + simulation.spec.producer_delay_ms + 60_000)
    run = simulation.run
    return {
        "output": live.written,
        "late": [f"{side} {live.named(side, (p, offset))}" for side, p, offset in run.late],
        "dead": [f"{side} {live.named(side, (p, offset))}" for side, p, offset in run.dead],
        "unjoined": [live.named("right", position) for position in run.unjoined],
        "window": run.window,
    }


@pytest.mark.parametrize("heading", COMPLAINTS)
def test_a_complaint_about_another_join_has_the_outcome_that_is_promised(heading: str) -> None:
    """What the file leaves out is empty."""
    complaint = COMPLAINTS[heading]
    expected = {"output": [], "late": [], "dead": [], "unjoined": [], "window": 0}
    expected |= {key: value for key, value in complaint.items() if key in expected}

    assert outcome(complaint) == expected


def test_every_complaint_of_the_page_is_run() -> None:
    """Each has its link, and a history or the test that shows the outcome."""
    assert len(COMPLAINTS) > 5
    assert set(COMPLAINTS) <= set(ROWS)
    for heading, row in ROWS.items():
        named = re.findall(r"`tests/([\w/]+\.py)::(\w+)`", row)
        assert heading in COMPLAINTS or named, heading
        for file, test in named:
            assert f"def {test}(" in (Path(__file__).parents[1] / file).read_text("utf-8")


def test_a_position_that_retention_has_passed_stops_the_join() -> None:
    """It doesn't go on without the records that it never read."""
    live = Live({"join": {"before": "10s"}, "left": ["a 10s", "a 20s at 90s", "a 95s"], "right": ["a 9s"]})
    live.until(60_000)

    live.simulation.clock.advance(60_000)
    live.simulation.left.delete_before(0, 2)

    with pytest.raises(DataLoss, match="retention has deleted"):
        live.simulation.admit()
    assert live.written == ["a 10s with a 9s at 21s"]
