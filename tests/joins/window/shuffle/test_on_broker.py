"""Topics that are not partitioned alike, joined on a real broker: once through Spark, once by a job, else here."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from joins.batch.handover import Handover
from joins.errors import NotCoPartitioned
from joins.plan.start.copartition import murmur2, with_path
from joins.spec import JoinPath, JoinSpec, Policy, Right, Side
from joins.testing import oracle
from joins.window import backup
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.support.driving import Driven
from tests.support.jobprocess import JobProcess, records
from tests.support.making import changed
from tests.support.morepartitions import add_partitions
from tests.support.provenance import left_of, right_of
from tests.support.sparkjoin import Put, history, produce, run_of_all, running
from tests.support.waiting import wait_until

LEFT, RIGHT = 3, 2  # partitions


@pytest.fixture
def spec(kafka: dict[str, str], topic_factory: Any) -> JoinSpec:
    return JoinSpec(
        name="shuffled",
        left=Side(topic=topic_factory(LEFT, prefix="left"), disorder_ms=0),
        right=Right(topic=topic_factory(RIGHT, prefix="right"), disorder_ms=0, before_ms=2_000, after_ms=1_000),
        producer_delay_ms=1_000,
        watermark_every_ms=200,
        kafka=kafka,
    )


def backlog(start_ms: int, count: int = 600) -> tuple[list[Put], list[Put]]:
    """Every key is in every partition of both topics; some have none."""
    left = [Put(i % LEFT, None if i % 17 == 0 else b"%d" % (i % 7), start_ms + 40 * i) for i in range(count)]
    right = [
        Put(i % RIGHT, None if i % 19 == 0 else b"%d" % (i % 9), start_ms + 50 * i, None if i % 3 == 0 else b"v")
        for i in range(count * 5 // 6)
    ]
    return left, right


def put(spec: JoinSpec, left: list[Put], right: list[Put]) -> None:
    produce(dict(spec.kafka), spec.right.topic, right)
    produce(dict(spec.kafka), spec.left.topic, left)


def by_key(partitions: int, start_ms: int) -> list[Put]:
    """More records than are sampled, each with a key of its own, where Java's client puts them."""
    keys = [b"%d-%d" % (start_ms, i) for i in range(200 * partitions)]
    return [Put(murmur2(key) % partitions, key, start_ms + i) for i, key in enumerate(keys)]


def test_a_backlog_equals_the_oracle(spark: Any, spec: JoinSpec, tmp_path: Path) -> None:
    """The path is chosen by itself, as the numbers of partitions differ; a restart divides it otherwise, with nothing
    left of the window's files."""
    spec = changed(spec, max_records=300, policy=Policy.ALL)
    left, right = backlog(wall_ms() - 600_000)
    put(spec, left, right)

    with running(spark, spec, tmp_path) as first:
        first.until_left(100)
    assert len({(result.left_partition, result.left_offset) for result in first.results()}) < len(left)
    shutil.rmtree(tmp_path / "windows")
    again = replace(spec, path=JoinPath.SHUFFLED, buckets=4)
    run = run_of_all(spark, again, tmp_path)

    # The batch that was running when the query was stopped ran again, and its rows were collected again.
    assert {*first.results(), *run.results()} == {*oracle.join(history(spec, left, right), spec)}
    assert {s.buckets for s in first.summaries} == {LEFT}
    assert {s.buckets for s in run.summaries} >= {4}


def test_a_machine_without_the_windows_fetches_them(spec: JoinSpec, tmp_path: Path) -> None:
    """From the copies of another one; what they end before, it reads from Kafka."""
    spec, copies = (
        with_path(changed(spec, max_records=200, before_ms=20_000)),
        tmp_path / "copies",
    )
    left, right = backlog(wall_ms() - 600_000)
    put(spec, left, right)
    run = Driven(spec, tmp_path, copies=str(copies))

    run.until_left(400)
    wait_until(lambda: not backup._busy)
    copied = {path.relative_to(copies) for path in copies.rglob("*.slice")}
    shutil.rmtree(run.windows)
    run.restart()
    run.until_left(len(left))

    assert run.results() == oracle.join(history(spec, left, right), spec)
    assert len({path.parent for path in copied}) == LEFT
    assert any((run.windows / path).exists() for path in copied)


def test_partitions_that_are_added_are_read(spec: JoinSpec, tmp_path: Path) -> None:
    """While the query runs, on both sides."""
    start_ms = wall_ms() - 5_000
    left, right = [Put(0, b"a", start_ms)], [Put(0, b"a", start_ms)]
    put(spec, left, right)
    run = Driven(with_path(spec), tmp_path).until_left(1)

    add_partitions(spec.kafka, spec.left.topic, LEFT + 1)
    add_partitions(spec.kafka, spec.right.topic, RIGHT + 2)
    now_ms = wall_ms()
    later = [Put(LEFT, b"b", now_ms), Put(LEFT, b"c", now_ms)], [Put(RIGHT + 1, b"b", now_ms)]
    put(spec, *later)
    run.until_left(3)

    expected = oracle.join(history(spec, [*left, *later[0]], [*right, *later[1]]), spec)
    assert run.results() == expected
    assert [result.outcome for result in expected] == ["matched", "matched", "unmatched"]


def test_topics_that_were_given_more_partitions_take_the_shuffled_path(
    kafka: dict[str, str], spec: JoinSpec, topic_factory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """If records of before are read; the newest, of which there are many, are all where their keys belong now."""
    topics = {name: topic_factory(4, prefix=name) for name in ("left", "right")}
    sides = {name: replace(spec.side(name), topic=topic) for name, topic in topics.items()}
    spec, before_ms, after_ms = replace(spec, **sides), 1_700_000_000_000, 1_700_003_600_000
    for topic in topics.values():
        produce(kafka, topic, by_key(4, before_ms))
    assert with_path(spec).path is JoinPath.DIRECT
    for topic in topics.values():
        add_partitions(kafka, topic, 6)
    assert with_path(spec).path is JoinPath.SHUFFLED
    for topic in topics.values():
        produce(kafka, topic, by_key(6, after_ms))

    assert with_path(replace(spec, start=after_ms)).path is JoinPath.DIRECT
    caplog.set_level("INFO", logger="teacup")
    assert with_path(spec).path is JoinPath.SHUFFLED
    assert "are where murmur2 (Java) puts them in 6 partitions" in caplog.text
    with pytest.raises(NotCoPartitioned, match=r"Leave `join\.path` out"):
        with_path(replace(spec, path=JoinPath.DIRECT))
    moved = Handover(
        checkpoint="/old",
        generation="g",
        number=7,
        name=spec.name,
        output="out",
        topic=spec.left.topic,
        topic_id="t",
        left=dict.fromkeys(range(4), 200),
    )
    assert with_path(replace(spec, start=after_ms), None, moved).path is JoinPath.SHUFFLED
    assert "had 4 partitions" in caplog.text


def test_a_job_delivers_every_row_once(
    kafka: dict[str, str], spec: JoinSpec, topic_factory: Any, tmp_path: Path
) -> None:
    """With its side topics, though it was killed; it says why it takes the shuffled path."""
    out, dead, unjoined = (topic_factory(2, prefix=name) for name in ("out", "dead", "unjoined"))
    document = {
        "name": out,
        "kind": "window-join",
        "kafka": kafka,
        "left": {"topic": spec.left.topic, "disorder": "0s"},
        "right": {"topic": spec.right.topic, "disorder": "0s"},
        "join": {"before": "2s", "after": "1s", "buckets": 3},
        "records_per_batch": 300,
        "output": {"topic": out},
        "topics": {"dead_letter": dead, "unjoined": unjoined},
        "trigger": "available_now",
        "checkpoint": str(tmp_path / "checkpoint"),
        "window_folder": str(tmp_path / "windows"),
        "spark": {"master": "local[2]"},
    }
    left, right = backlog(1_700_000_000_000)
    produce(kafka, spec.right.topic, right)
    produce(kafka, spec.left.topic, [*left, Put(1, b"k", wall_ms() + 1_800_000)])
    first = JobProcess(tmp_path, document)
    first.until(lambda: sum(line.get("event") == "batch" for line in first.lines) == 2, "two batches")
    first.kill()
    assert "takes the shuffled path" in first.logged()

    assert JobProcess(tmp_path, document).ended() == ExitCode.DONE

    rows = [record["headers"] for record in records(kafka, out)]
    expected = oracle.join(history(spec, left, right), spec)
    positions = (
        (f"{r.left_partition}:{r.left_offset}", r.right and f"{r.right_partition}:{r.right_offset}") for r in expected
    )
    assert Counter((left_of(headers), right_of(headers)) for headers in rows) == Counter(positions)
    (refused,) = records(kafka, dead)
    assert refused["headers"]["teacup.reason"] == "future_time"
    joined = {right_of(headers) for headers in rows}
    assert not joined & {right_of(record["headers"]) for record in records(kafka, unjoined)}
    assert json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])["parts"] == LEFT


def test_clicks_find_their_impressions_whatever_the_topics_are_keyed_by(
    spec: JoinSpec, topic_factory: Any, tmp_path: Path
) -> None:
    """Clicks by user in 6 partitions, impressions by impression in 8; a click that names none is unmatched."""
    start_ms = wall_ms() - 60_000
    clicks, impressions = topic_factory(6, prefix="clicks"), topic_factory(8, prefix="impressions")
    spec = changed(
        spec,
        left=Side(topic=clicks, disorder_ms=0, format="json", key="$.impression_id"),
        right=Side(topic=impressions, disorder_ms=0, format="json"),
    )
    shown = [Put(n % 8, b"%d" % n, start_ms + n, b'{"campaign": %d}' % n) for n in range(40)]
    clicked = [Put(n % 6, b"user", start_ms + 500 + n, b'{"impression_id": %d}' % (3 * n)) for n in range(20)]
    clicked.append(Put(0, b"user", start_ms + 600, b"{}"))
    produce(dict(spec.kafka), impressions, shown)
    produce(dict(spec.kafka), clicks, clicked)

    run = Driven(with_path(spec), tmp_path).drain()

    rows = [
        (
            json.loads(r["left_value"]).get("impression_id"),
            r["right_value"] and json.loads(r["right_value"])["campaign"],
        )
        for r in run.rows
        if r["outcome"] in ("matched", "unmatched")
    ]
    expected = [(3 * n, 3 * n if 3 * n < 40 else None) for n in range(20)] + [(None, None)]
    assert sorted(rows, key=str) == sorted(expected, key=str)
    assert {r["reason"] for r in run.rows if r["left_value"] == b"{}"} == {"null_key"}
