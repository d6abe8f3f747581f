"""A join whose window folder cannot be used, on a real broker and a real Spark."""

from __future__ import annotations

from pathlib import Path

from joins.spec import JoinSpec, Side
from joins.testing import oracle
from kafkaio.now import wall_ms
from tests.support.sparkjoin import Put, history, produce, running
from tests.support.waiting import run_to_its_end


def test_a_join_without_a_usable_folder_is_right_also_after_a_restart(spark, kafka, topic_factory, tmp_path: Path):
    """A file is in the folder's place: nothing is kept there, and a new query reads its window from the log."""
    spec = JoinSpec(
        name="unusable",
        left=Side(topic=topic_factory(1, prefix="left"), disorder_ms=0),
        right=Side(topic=topic_factory(1, prefix="right"), disorder_ms=0),
        before_ms=600_000,
        after_ms=0,
        producer_delay_ms=1_000,
        kafka=kafka,
    )
    (tmp_path / "windows").write_text("somebody's")
    start = wall_ms() - 5_000
    right = [Put(0, b"%d" % (i % 7), start + i) for i in range(200)]
    left = [Put(0, b"%d" % (i % 9), start + 1_000 + i) for i in range(100)]
    produce(kafka, spec.right.topic, right)
    produce(kafka, spec.left.topic, left)
    with running(spark, spec, tmp_path, availableNow=True) as before:
        run_to_its_end(before.query)
    later = [Put(0, b"%d" % (i % 9), wall_ms()) for i in range(100)]
    produce(kafka, spec.left.topic, later)

    with running(spark, spec, tmp_path, availableNow=True) as after:
        run_to_its_end(after.query)

    assert before.results() + after.results() == oracle.join(history(spec, left + later, right), spec)
    assert (tmp_path / "windows").read_text() == "somebody's"
