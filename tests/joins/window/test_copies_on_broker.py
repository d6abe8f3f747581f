"""A bucket goes on on a machine that lacks its window: from copies of the slices, from Kafka, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from datadelay.watermark import Idle
from joins.errors import DataLoss
from joins.spec import JoinSpec, Right, Side
from joins.window import backup
from tests.support.driving import Driven
from tests.support.sparkjoin import Put, produce
from tests.support.waiting import wait_until

START_MS = 1_700_000_000_000
KEYS = 120
READ = 80  # right records that are in the window before the machine is lost


@pytest.fixture
def spec(kafka: dict[str, str], topic_factory, monkeypatch: pytest.MonkeyPatch) -> JoinSpec:
    """Batches of a few records; each copies what those before it have read."""
    monkeypatch.setattr("joins.window.covering.EVERY_MS", 0)
    return JoinSpec(
        name="copies",
        left=Side(topic=topic_factory(prefix="left"), disorder_ms=0),
        right=Right(topic=topic_factory(prefix="right"), disorder_ms=0, before_ms=60_000),
        idle=Idle.HOLD,
        outliers=0,
        max_records=20,
        kafka=kafka,
    )


def put(spec: JoinSpec, side: str, keys: range, later_ms: int = 0) -> None:
    records = [Put(0, b"k%d" % key, START_MS + 100 * key + later_ms) for key in keys]
    produce(dict(spec.kafka), spec.side(side).topic, records)


def put_end(spec: JoinSpec, side: str, later_ms: int) -> None:
    produce(dict(spec.kafka), spec.side(side).topic, [Put(0, b"end", START_MS + later_ms)])


def delete_right(spec: JoinSpec, below: int) -> None:
    part = TopicPartition(spec.right.topic, 0, below)
    admin = AdminClient(dict(spec.kafka))  # a name, as the answer never comes once the client is gone
    admin.delete_records([part])[part].result(30)


@pytest.mark.parametrize("lost", ["nothing", "copies", "kafka", "both"])
def test_a_window_is_restored_from_copies_or_kafka_or_refused(spec: JoinSpec, tmp_path: Path, lost: str) -> None:
    """Left finds the right records that were read before the machine was lost; none counts as unjoined that is not."""
    copies = tmp_path / "copies"
    run = Driven(spec, tmp_path, tmp_path / "facts", str(copies))
    for keys in (range(READ), range(READ, KEYS)):
        put(spec, "right", keys)
        put(spec, "left", keys[::2])
        run.until_quiet()
        wait_until(lambda: not backup._busy)

    run.restart()
    shutil.rmtree(run.windows)
    if lost in ("kafka", "both"):
        delete_right(spec, READ // 2)
    if lost in ("copies", "both"):
        shutil.rmtree(copies)
    put(spec, "left", range(1, KEYS, 2), later_ms=KEYS * 100)
    put_end(spec, "right", later_ms=50_000)

    if lost == "both":
        with pytest.raises(DataLoss, match=spec.right.topic):
            run.until_quiet()
        return
    assert run.until_quiet().matched == joined()
    put_end(spec, "left", later_ms=200_000)  # the window expires
    put_end(spec, "right", later_ms=200_001)
    run.until_quiet()
    assert run.summaries[-1].window_records == 1
    assert [row["right_key"] for row in run.about("unjoined")] == [b"end"]


def joined() -> dict[int, int]:
    """Left offset -> right offset: even keys came first."""
    return dict(enumerate([*range(0, READ, 2), *range(READ, KEYS, 2), *range(1, KEYS, 2)]))
