"""What a job prints."""

from __future__ import annotations

import io
import json
import os
import pty
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.watch.backlog import Pace
from deploy.watch.lines import WIDTH, Lines, fitted, shown_s
from deploy.watch.listener import JobState, Phase, TopicLag
from deploy.watch.measures import Measured


@dataclass
class Batch:
    """A report with nothing behind it."""

    records: int = 10
    events: list[str] = field(default_factory=list)
    warnings: Sequence[str] = ()
    seconds: float = 0.1

    def usual(self) -> list[str]:
        return ["batch 7", f"read {self.records}"]

    def rare(self) -> list[str]:
        return self.events

    def for_machines(self) -> dict[str, Any]:
        return {"event": "batch", "read": self.records}

    def samples(self) -> list[Measured]:
        return []


class Clock:
    """Stops until it is moved."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def printed(as_json: bool, batches: Sequence[tuple[float, Batch]]) -> list[str]:
    """The lines after batches at these seconds."""
    out, clock = io.StringIO(), Clock()
    lines = Lines(as_json=as_json, out=out, clock=clock)
    for at_s, batch in batches:
        clock.now_s = 50.0 + at_s
        lines.batch(batch)
    lines.close()
    return out.getvalue().splitlines()


def written(master: int) -> str:
    """What a terminal has received and nobody has read yet."""
    parts = []
    while True:
        try:
            parts.append(os.read(master, 100_000))
        except BlockingIOError:
            return b"".join(parts).decode()


def test_on_a_terminal_the_last_line_is_alive_and_the_others_stay_whole() -> None:
    """And the terminal is left as it was."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    shown = ""
    with os.fdopen(slave, "w") as out:
        lines = Lines(as_json=False, out=out)
        assert lines.watches
        while "records left" not in shown:  # the line is drawn again a few times a second
            lines.moment(JobState(at_ms=0, phase=Phase.RUNNING, lag=TopicLag(0, {"left": 1_000}, 5.0)))
            shown += written(master)
        lines.batch(Batch())
        lines.idle("nothing to do", {})
        lines.close()
        shown += written(master)
    os.close(master)

    assert "running for 0:00:00, 1,000 records left, through in 5 s" in shown
    assert re.search(r"\d\d:\d\d:\d\dZ  batch 7  read 10\r\n", shown)
    assert re.search(r"\d\d:\d\d:\d\dZ  nothing to do\r\n", shown)
    assert shown.rindex("\x1b[?25h") > shown.rindex("running")  # the cursor is shown again


@given(st.lists(st.text("abc", min_size=1, max_size=130), max_size=30))
def test_lines_are_narrow_and_keep_every_part(parts: list[str]) -> None:
    """In their order; a part that is wider alone gets a line of its own."""
    lines = list(fitted(parts))

    assert [part for line in lines for part in line.strip().split("  ")] == parts
    assert all(len(line) <= WIDTH or "  " not in line.strip() for line in lines)


def test_people_get_one_line_per_second_and_none_while_nothing_happens() -> None:
    """With the time in front."""
    lines = printed(False, [(0, Batch()), (0.4, Batch()), (0.9, Batch()), (1.1, Batch()), (5, Batch(records=0))])

    assert [line.split("Z  ")[1] for line in lines] == ["batch 7  read 10"] * 2


def test_the_last_batch_gets_a_line() -> None:
    """With any other in between, the run would look as if it had not done this."""
    batches = [(0, Batch()), (0.2, Batch(20)), (0.4, Batch(30)), (0.6, Batch(0))]

    lines = printed(False, batches)

    assert [line.split("Z  ")[1] for line in lines] == ["batch 7  read 10", "batch 7  read 30"]
    assert len(printed(False, [*batches, (2, Batch(40))])) == 2
    assert len(printed(True, batches)) == 4


def test_rare_events_always_get_a_line() -> None:
    """They would be missed in the next one."""
    lines = printed(False, [(0, Batch()), (0.1, Batch(events=["dead letters (too_large) 1"]))])

    assert lines[1].endswith("dead letters (too_large) 1")


def test_machines_get_every_batch() -> None:
    """One JSON object per line."""
    lines = printed(True, [(0, Batch()), (0, Batch(records=0))])

    assert [json.loads(line)["read"] for line in lines] == [10, 0]


def test_a_warning_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Standard output is for batches."""
    printed(False, [(0, Batch(warnings=["left.disorder is too small"]))])

    assert caplog.messages == ["left.disorder is too small"]


def test_the_pace_says_when_a_backlog_is_read() -> None:
    """From how fast it has become less, new records included."""
    pace = Pace()
    assert pace.through_in_s() is None
    for at_s, left in ((0.0, 10_000), (10.0, 9_000), (20.0, 8_000)):
        pace.see(at_s, left)

    assert pace.through_in_s() == pytest.approx(80)
    pace.see(30.0, 12_000)
    assert pace.through_in_s() is None


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (59.4, "59 s"), (125, "2 min 5 s"), (7_800, "2 h 10 min")]
)
def test_durations_for_people(seconds: float, shown: str) -> None:
    """Two units at most."""
    assert shown_s(seconds) == shown
