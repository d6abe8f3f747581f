"""A bucket goes on on a machine that lacks its window: from copies of the slices, from Kafka, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from joins.errors import DataLoss
from joins.spec import JoinSpec, Side
from joins.window import checkpointed
from tests.joins.window.driving import Driven, StoppedClock
from tests.support.sparkjoin import Put, produce
from tests.support.waiting import wait_until

KEYS = 120
READ = 80  # right records that are in the window before the machine is lost


@pytest.fixture
def spec(kafka: dict[str, str], topic_factory, monkeypatch: pytest.MonkeyPatch) -> JoinSpec:
    """Batches of a few records; each copies what those before it have read."""
    monkeypatch.setattr("joins.window.copied.EVERY_MS", 0)
    return JoinSpec(
        name="copies",
        left=Side(topic=topic_factory(prefix="left"), disorder_ms=0),
        right=Side(topic=topic_factory(prefix="right"), disorder_ms=0),
        before_ms=60_000,
        producer_delay_ms=1_000,
        outliers=0,
        max_records=20,
        kafka=kafka,
    )


def put(spec: JoinSpec, side: str, start_ms: int, keys: range, later_ms: int = 0) -> None:
    records = [Put(0, b"k%d" % key, start_ms + 100 * key + later_ms) for key in keys]
    produce(dict(spec.kafka), spec.side(side).topic, records)


def delete_right(spec: JoinSpec, below: int) -> None:
    part = TopicPartition(spec.right.topic, 0, below)
    AdminClient(dict(spec.kafka)).delete_records([part])[part].result(30)


@pytest.mark.parametrize("lost", ["nothing", "copies", "kafka", "both"])
def test_a_window_is_restored_from_copies_or_kafka_or_refused(
    spec: JoinSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Left finds the right records that were read before the machine was lost; none counts as unjoined that is not."""
    clock = StoppedClock(monkeypatch)
    start_ms, copies = clock.now_ms - 600_000, tmp_path / "copies"
    put(spec, "right", start_ms, range(READ))
    put(spec, "left", start_ms, range(0, READ, 2))
    run = Driven(spec, tmp_path, tmp_path / "facts", str(copies)).drain()
    put(spec, "right", start_ms, range(READ, KEYS))
    put(spec, "left", start_ms, range(READ, KEYS, 2))
    run.drain()
    wait_until(lambda: not checkpointed._busy)

    run.restart()
    shutil.rmtree(run.windows)
    if lost in ("kafka", "both"):
        delete_right(spec, READ // 2)
    if lost in ("copies", "both"):
        shutil.rmtree(copies)
    put(spec, "left", start_ms, range(1, KEYS, 2), later_ms=KEYS * 100)

    if lost == "both":
        with pytest.raises(DataLoss, match=rf"a batch that is planned cannot be carried out.*{spec.right.topic}"):
            run.drain()
        return
    run.drain()
    joined = {r["left_key"]: r["right_offset"] for r in run.about("matched")}
    assert joined == {b"k%d" % key: key for key in range(KEYS)}
    assert ("files" in {one.restored for one in run.summaries}) or lost == "copies"
    clock.go_on(600_000)
    run.until_quiet()
    assert run.about("unjoined") == []
