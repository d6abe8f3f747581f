"""What a job prints."""

from __future__ import annotations

import io
import json
import os
import pty
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.watch.backlog import Pace
from deploy.watch.concerns import ConcernNews
from deploy.watch.life.moment import JobState, Phase, TopicLag, WaitingFor
from deploy.watch.lines import WIDTH, Lines, cut, fitted
from deploy.watch.measures import DEAD, ROWS
from teacup.base.errors import ExitCode
from teacup.base.times import iso, shown_ms, shown_s
from tests.deploy.watch.reports import ABOUT, Batch, Clock
from tests.support.waiting import wait_until


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


def live(master: int, lines: Lines, now: JobState, until: str) -> str:
    """What a terminal has received once the live line, which is drawn again a few times a second, says this."""
    shown = ""
    while until not in shown:
        lines.moment(now)
        shown += written(master)
    return shown


@contextmanager
def terminal() -> Iterator[tuple[int, TextIO]]:
    """The two ends of one."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    with os.fdopen(slave, "w") as out:
        yield master, out
    os.close(master)


def test_on_a_terminal_one_live_line_takes_the_place_of_those_of_batches() -> None:
    """What is rare, and the sum, stay above it; the terminal is left as it was."""
    lag = JobState(at_ms=0, phase=Phase.RUNNING, lag=TopicLag(0, {"left": 1_000}, 5.0))
    with terminal() as (master, out):
        lines = Lines(as_json=False, out=out)
        lines.opening(replace(ABOUT, ends=True))
        assert lines.watches
        shown = live(master, lines, lag, "records left")
        lines.batch(Batch())
        lines.batch(Batch(20, events=["dead letters (too_large) 1"]))
        shown += live(master, lines, lag, "batch 7")
        lines.idle("all is judged", {})
        lines.ended(ExitCode.DONE)
        lines.close()
        shown += written(master)

    assert "running for 0:00:00  1,000 records left, through in 5 s" in shown
    assert "  batch 7  read 20" in shown
    stayed = [line.split("Z  ")[1] for line in re.findall(r"\d\d:\d\d:\d\dZ  .*(?=\r\n)", shown)]
    assert stayed == [
        "joins; Spark starts, Ctrl-C stops",
        "batch 7  read 20  dead letters (too_large) 1",
        "nothing to do: all is judged",
        "done after 0:00:00: 30 records read in 2 batches",
    ]
    assert shown.rindex("\x1b[?25h") > shown.rindex("running")  # the cursor is shown again


def drawn(master: int, until: str) -> None:
    """Waits until a terminal has received this, which nothing tells."""
    shown: list[str] = []
    wait_until(lambda: shown.append(written(master)) or until in "".join(shown))


def test_the_live_line_is_true_while_a_job_starts_and_stops() -> None:
    """Nothing is told for seconds then: the time moves, and that it was asked to stop is shown."""
    asked: list[bool] = []
    clock = Clock()
    with (
        terminal() as (master, out),
        closing(Lines(as_json=False, out=out, clock=clock, stops=lambda: bool(asked))) as it,
    ):
        it.opening(ABOUT)
        it.moment(JobState(at_ms=0, phase=Phase.STARTING))
        drawn(master, "starting, begun 0:00:00 ago")
        clock.now_s += 5
        drawn(master, "starting, begun 0:00:05 ago")
        asked.append(True)
        drawn(master, "stopping, begun 0:00:05 ago  no batch is in progress")


def test_a_job_that_is_asked_to_stop_before_it_begins_does_not_say_how() -> None:
    """It was done already."""
    out = io.StringIO()
    Lines(as_json=False, out=out, stops=lambda: True).opening(ABOUT)

    assert out.getvalue() == ""


class Writes(io.StringIO):
    """What is written, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, text: str) -> int:
        self.calls.append(text)
        return len(text)


def test_without_a_terminal_a_line_is_not_broken() -> None:
    """`grep` finds it with its time, and the lines of several jobs do not mix: each is one write."""
    out = Writes()
    Lines(as_json=False, out=out, name="clicks").batch(Batch(events=["x" * WIDTH, "y" * WIDTH]))

    (line,) = out.calls
    assert line.endswith(f"Z  clicks  batch 7  read 10  {'x' * WIDTH}  {'y' * WIDTH}\n")


def test_a_live_job_does_not_say_when_it_is_through() -> None:
    """More comes all the time; what it waits for is said."""
    waits = WaitingFor("open_transaction", 0, "right-0: an open transaction")
    now = JobState(at_ms=0, phase=Phase.RUNNING, waiting=waits, lag=TopicLag(0, {"left": 1_000}, 5.0))
    with terminal() as (master, out), closing(Lines(as_json=False, out=out)) as lines:
        lines.opening(ABOUT)
        shown = live(master, lines, now, "records left")

    assert "1,000 records left  waits for open transaction" in shown
    assert "through in" not in shown


@pytest.mark.parametrize("width", [20, 30, 60])
def test_the_live_line_is_one_line(width: int) -> None:
    """Of whole parts, as many as fit; a narrower terminal cuts the first one."""
    parts = ["running for 0:00:00", "", "1,000 records left", "batch 7"]

    shown = cut(parts, width)

    assert len(shown) <= width
    assert shown == {20: parts[0], 30: parts[0], 60: "running for 0:00:00  1,000 records left  batch 7"}[width]


@pytest.mark.parametrize(
    ("ends", "code", "batches", "said"),
    [
        (True, ExitCode.DONE, [Batch(1_000), Batch(10)], "done after 0:00:05: 1,010 records read in 2 batches"),
        (False, ExitCode.DONE, [Batch(10)], "stopped after 0:00:05: 10 records read in 1 batch"),
        (True, ExitCode.DONE, [], "nothing to do: left-topic and right-topic had nothing new that may be read"),
        (False, ExitCode.DONE, [], "stopped: nothing was read"),
        (False, ExitCode.UNREACHABLE, [], "ended with exit code 4 after 0:00:05: 0 records read in 0 batches"),
    ],
)
def test_the_last_line_sums_up(ends: bool, code: ExitCode, batches: list[Batch], said: str) -> None:
    """After the last batch, which has its line."""
    out, clock = io.StringIO(), Clock()
    with closing(Lines(as_json=False, out=out, clock=clock)) as lines:
        lines.opening(replace(ABOUT, ends=ends))
        for batch in batches:
            lines.batch(batch)
        clock.now_s += 5
        lines.ended(code)

    assert out.getvalue().splitlines()[-1].split("Z  ")[1] == said


def test_the_sum_counts_rows_by_outcome() -> None:
    """Whatever the kind of job: they are its metrics."""
    out = io.StringIO()
    with closing(Lines(as_json=False, out=out)) as lines:
        for matched in (3, 4):
            unmatched = ROWS(1, outcome="unmatched", reason="no_candidate")
            lines.batch(Batch(numbers=[ROWS(matched, outcome="matched", reason=""), unmatched]))
        lines.ended(ExitCode.DONE)

    assert out.getvalue().splitlines()[-1].endswith("20 records read in 2 batches, matched 7, unmatched 2")


def test_the_sum_counts_dead_letters_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    """For machines beside their number."""
    caplog.set_level("INFO", "teacup")
    numbers = [
        ROWS(2, outcome="matched", reason=""),
        *(of for reason in ("no_time", "too_large") for of in (ROWS(1, outcome="dead_letter", reason=reason),)),
        *(DEAD(1, reason=reason) for reason in ("no_time", "too_large")),
    ]
    out = io.StringIO()
    for as_json in (False, True):
        with closing(Lines(as_json=as_json, out=out)) as lines:
            lines.batch(Batch(numbers=numbers))
            lines.ended(ExitCode.DONE)

    assert (
        "10 records read in 1 batch, matched 2, dead letters (no_time) 1, dead letters (too_large) 1" in out.getvalue()
    )
    said = json.loads(caplog.messages[-1])
    assert (said["rows"], said["dead"]) == ({"matched": 2, "dead_letter": 2}, {"no_time": 1, "too_large": 1})


@pytest.mark.parametrize(
    ("lag", "unread"),
    [
        (TopicLag(0, {"clicks": 1_456, "views": 0}), "unread: clicks 1,456, views 0"),
        (None, "what is unread is not known, see `teacup status`"),
    ],
)
def test_a_run_that_was_stopped_before_all_was_read_says_what_is_unread(
    lag: TopicLag | None, unread: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its exit code says that it was not done. `left` would be a side of a join."""
    caplog.set_level("INFO", "teacup")
    out = io.StringIO()
    with closing(Lines(as_json=False, out=out, clock=Clock())) as lines:
        lines.opening(replace(ABOUT, ends=True))
        lines.batch(Batch())
        lines.moment(JobState(at_ms=0, phase=Phase.STOPPING, lag=lag))
        lines.ended(ExitCode.STOPPED)

    said = f"stopped before all was read (exit code 14), after 0:00:00: 10 records read in 1 batch; {unread}"
    assert out.getvalue().splitlines()[-1].split("Z  ")[1] == said

    machines = Lines(as_json=True, out=out)
    machines.moment(JobState(at_ms=0, phase=Phase.STOPPING, lag=lag))
    machines.ended(ExitCode.STOPPED)
    assert json.loads(caplog.messages[-1])["unread"] == (lag and lag.records)


def test_machines_get_the_sum_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Standard output is for batches."""
    caplog.set_level("INFO", "teacup")
    out = io.StringIO()
    with closing(Lines(as_json=True, out=out, clock=Clock())) as lines:
        lines.batch(Batch())
        lines.ended(ExitCode.DONE)

    (line,) = caplog.messages
    assert json.loads(line) == {
        "event": "end",
        "code": 0,
        "seconds": 0.0,
        "batches": 1,
        "read": 10,
        "rows": {},
        "dead": {},
    }
    assert len(out.getvalue().splitlines()) == 1


def test_a_line_for_machines_says_when_and_of_which_job() -> None:
    """And how important it is, and of which generation of the checkpoint, where the report knows it."""
    out = io.StringIO()
    with closing(Lines(as_json=True, out=out)) as lines:
        lines.opening(ABOUT)
        lines.batch(Batch())
        lines.told(ConcernNews(("left.disorder is too small",)))
        lines.batch(Batch())

    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["job"], line["level"]) for line in found] == [("clicks", "info"), ("clicks", "warning")]
    assert [line["warnings"] for line in found] == [[], ["left.disorder is too small"]]
    assert all(line["time"] == iso(line["at_ms"]) for line in found)


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
    ("seconds", "shown"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.96, "1 min 0 s"), (125, "2 min 5 s"), (10_740, "2 h 59 min")],
)
def test_durations_for_people(seconds: float, shown: str) -> None:
    """Two units at most; of a batch with tenths below a minute."""
    assert shown_s(seconds) == shown
    assert shown_ms(round(seconds * 1_000)) == (f"{seconds:.1f} s" if seconds < 59.95 else shown)


def test_the_lines_of_one_of_several_jobs_begin_with_its_name() -> None:
    """Unless they do so anyway."""
    out = io.StringIO()
    lines = Lines(as_json=False, name="clicks", out=out)
    lines.opening(replace(ABOUT, does="clicks: joins"))
    lines.batch(Batch())
    lines.ended(ExitCode.DONE)

    assert [line[11:].split("  ")[0] for line in out.getvalue().splitlines()] == [
        "clicks: joins; Spark starts, Ctrl-C stops",
        "clicks",
        "clicks",
    ]
