"""What a planner tells besides plans: how long one took, and what it waits for."""

from __future__ import annotations

from teacup.spark.jvm_errors import TaskRun, restarts, retries
from teacup.spark.planner_notes import POLL_EVERY_S, PlannerNote, PlannerNotes


class Ticking:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_waiting_is_counted_by_what_is_waited_for() -> None:
    """From one look to the next; a plan ends it."""
    clock = Ticking()
    notes = PlannerNotes(clock)
    for reason, seconds in (("clock", 0.5), ("clock", 0.5), ("unread", 3.0)):
        notes.waits(reason, lambda: (5, "right-0 is late"))
        clock.now_s += seconds
    waiting = notes.newest
    notes.planned(0.25)
    clock.now_s += 10
    notes.nothing_to_read()
    notes.planned(0.5)

    assert (waiting.reason, waiting.since_ms, waiting.text) == ("unread", 5, "right-0 is late")
    assert waiting.waited_s == {"clock": 1.0}
    assert notes.newest == PlannerNote(0.5, waited_s={"clock": 1.0, "unread": 3.0})


def test_a_long_wait_is_described_once_a_second() -> None:
    """The planner looks a hundred times a second, and the text for people takes time to make."""
    clock, texts = Ticking(), list[str]()
    notes = PlannerNotes(clock)
    for _ in range(30):
        notes.waits("clock", lambda: (5, texts.append("made") or "soon"))  # type: ignore[func-returns-value]
        clock.now_s += POLL_EVERY_S / 10

    assert 3 <= len(texts) <= 4


def test_a_retry_counts_once_however_many_summaries_its_task_gives() -> None:
    """A worker took another one's place if an attempt before had failed, and the process is new."""
    runs = [
        TaskRun(1),
        TaskRun(2, 1, new_worker=True),
        TaskRun(2, 1, new_worker=True),
        TaskRun(3, 2),
        TaskRun(4, 0, True),
    ]

    assert (retries(runs), restarts(runs)) == (3, 1)
