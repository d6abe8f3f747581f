"""A join whose window folder cannot be used, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from joins.spec import JoinSpec, Right, Side
from joins.testing import oracle
from tests.support.driving import Driven, StoppedClock
from tests.support.sparkjoin import Put, history, produce


def test_a_join_without_a_usable_folder_is_right_also_after_a_restart(
    kafka, topic_factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file is in the folder's place: nothing is kept there, and after a restart the window is read from the log."""
    spec = JoinSpec(
        name="unusable",
        left=Side(topic=topic_factory(1, prefix="left"), disorder_ms=0),
        right=Right(topic=topic_factory(1, prefix="right"), disorder_ms=0, before_ms=600_000, after_ms=0),
        producer_delay_ms=1_000,
        kafka=kafka,
    )
    clock = StoppedClock(monkeypatch)
    start = clock.now_ms - 5_000
    right = [Put(0, b"%d" % (i % 7), start + i) for i in range(200)]
    left = [Put(0, b"%d" % (i % 9), start + 1_000 + i) for i in range(100)]
    produce(kafka, spec.right.topic, right)
    produce(kafka, spec.left.topic, left)
    run = Driven(spec, tmp_path)
    run.windows.write_text("somebody's")
    run.drain()
    later = [Put(0, b"%d" % (i % 9), clock.now_ms) for i in range(100)]
    produce(kafka, spec.left.topic, later)
    clock.go_on(2_000)

    run.drain()

    assert run.results() == oracle.join(history(spec, left + later, right), spec)
    assert run.windows.read_text() == "somebody's"
