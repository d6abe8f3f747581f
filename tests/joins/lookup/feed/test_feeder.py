"""The feeder on a real broker and storage API: once through Spark, otherwise driven in the test's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from joins.errors import StoreWiped
from joins.lookup.feed.source import FeedReader
from joins.lookup.feed.spec import FeedBatch, FeedSpec, FeedStorage
from joins.lookup.feed.stage import FeedSummary
from joins.spec import Side
from teacup.base.clock import ClockReading, Trust, WallClock
from teacup.base.now import wall_ms
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import GroupOffsets
from teacup.spark.batches.jobs import Stream
from teacup.spark.batches.loop import BatchLoop
from teacup.spark.jvm_errors import TaskEnded, summaries_in
from teacup.spark.stream_reader import ReaderControl
from tests.support.feeding import Feeding, commit, stored
from tests.support.jobprocess import records
from tests.support.morepartitions import add_partitions
from tests.support.provenance import right_of
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, server_here
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a storage API on LMDB."""
    namespaces = [
        {"name": name, "keep": "all", "bound": 2, "retention": "1h", "max_value_bytes": 100}
        for name in ("plain", "dead", "start")
    ]
    with server_here(tmp_path_factory.mktemp("storage"), namespaces=namespaces) as url:
        yield url


@pytest.fixture
def spec(kafka: dict[str, str], topic_factory: Any, storage: str, request: pytest.FixtureRequest) -> FeedSpec:
    """A feeder of two partitions into a namespace."""
    name = topic_factory(2, prefix="right")
    return FeedSpec(
        name=f"feeder-{name}",
        right=Side(topic=name, disorder_ms=100),
        storage=FeedStorage(url=storage, namespace="plain", token=TOKEN, items_per_request=3),
        kafka=kafka,
    )


def run(spark: Any, spec: FeedSpec, checkpoint: Path) -> list[FeedSummary]:
    """Feed everything there is through Spark; returns the summaries of all tasks, or raises `TaskEnded`."""
    found: list[Any] = []

    def take(batch: Callable[[], list[Any]], tasks: int, number: int) -> None:
        found.extend(batch())

    committed = partial(commit, spec, spec.name)
    stream = Stream(FeedReader(spec, ReaderControl()))
    assert BatchLoop(spark, spec.name, str(checkpoint), stream, take, None, committed).start().awaitTermination(240)
    return summaries_in(found, FeedSummary)


def test_right_records_come_to_the_store_and_their_positions_to_the_group(
    spark: Any, spec: FeedSpec, tmp_path: Path
) -> None:
    """In several batches and requests, and again after a restart, each record once."""
    now_ms = wall_ms()
    produce(dict(spec.kafka), spec.right.topic, [Put(i % 2, b"k%d" % i, now_ms + i) for i in range(10)])

    first = run(spark, replace(spec, max_records=6), tmp_path / "c")
    produce(dict(spec.kafka), spec.right.topic, [Put(0, b"k0", now_ms + 50, None)])
    again = run(spark, spec, tmp_path / "c")

    assert sum(summary.stored for summary in first) == 10
    assert [summary.stored for summary in again] == [1]
    assert stored(spec, b"k0", b"k9") == [(b"k0", now_ms, b"v"), (b"k0", now_ms + 50, None), (b"k9", now_ms + 9, b"v")]
    groups = GroupOffsets(spec.name, spec.kafka)
    assert groups.read([(spec.right.topic, 1)]) == {(spec.right.topic, 1): 5}
    groups.close()


def test_what_cannot_be_stored_is_a_dead_letter_with_the_reason(spec: FeedSpec, topic_factory: Any) -> None:
    """Bad times, too large values, more items of a key than the bound; null keys are only counted.

    The topic accepts them, although it refuses such times and such a size.
    """
    small = topic_factory(1, config={"max.message.bytes": "600", "message.timestamp.after.max.ms": "600000"})
    spec = replace(spec, dead_letter=small, storage=replace(spec.storage, namespace="dead"))
    now_ms = wall_ms()
    of_one_key = [Put(0, b"same", now_ms + i) for i in range(3)]
    bad = [Put(0, b"future", now_ms + HOUR_MS), Put(0, b"large", now_ms, b"x" * 700), Put(0, None, now_ms)]
    produce(dict(spec.kafka), spec.right.topic, [*of_one_key, *bad])

    (summary,) = Feeding(spec).feed()

    assert (summary.read, summary.stored, summary.null_key) == (6, 2, 1)
    assert summary.dead == {"future_time": 1, "rejected": 2}
    dead = records(spec.kafka, spec.dead_letter or "")
    assert {(record["key"], right_of(record["headers"])[:2]) for record in dead} == {
        (b"future", "0:"),
        (b"large", "0:"),
        (b"same", "0:"),
    }
    large = next(record for record in dead if record["key"] == b"large")
    assert "max_value_bytes" in large["headers"]["teacup.reason"]
    assert (large["value"], large["headers"]["teacup.omitted"]) == (None, "value")
    future = next(record for record in dead if record["key"] == b"future")
    assert future["headers"]["teacup.time"] == str(now_ms + HOUR_MS)


def test_dead_letters_that_their_topic_refuses_as_they_are(spec: FeedSpec, topic_factory: Any) -> None:
    """A time ten days ahead, no time, and a value above the limit: they go there, and headers say what is missing."""
    right = topic_factory(1, {"message.timestamp.after.max.ms": str(10**12)})
    dead = topic_factory(1, {"max.message.bytes": "20000"})
    spec = replace(spec, right=replace(spec.right, topic=right), dead_letter=dead)
    now_ms = wall_ms()
    ahead_ms = now_ms + 240 * HOUR_MS
    bad = [Put(0, b"ahead", ahead_ms), Put(0, b"none", -1), Put(0, b"large", ahead_ms, b"x" * 30_000)]
    produce(dict(spec.kafka), right, [*bad, Put(0, b"good", now_ms)])

    (summary,) = Feeding(spec).feed()

    assert (summary.stored, summary.dead) == (1, {"future_time": 2, "no_time": 1})
    copies = {record["key"]: (record["value"], record["headers"]) for record in records(spec.kafka, dead)}
    assert copies[b"ahead"][0] == b"v"
    assert copies[b"ahead"][1]["teacup.time"] == str(ahead_ms)
    assert copies[b"none"][1]["teacup.reason"] == "no_time"
    assert (copies[b"large"][0], copies[b"large"][1]["teacup.omitted"]) == (None, "value")


def test_a_clock_behind_the_records_holds_the_feeder(
    spec: FeedSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All of them would be dead letters; a few that are from the future are. It is waited for without a limit."""
    now_ms, ahead_ms = wall_ms(), 50 * 60_000
    stop = threading.Event()
    reader = FeedReader(spec, ReaderControl(stopping=stop.is_set, unreachable_for_s=0.0))
    start = reader.latest({})
    few = [Put(0, b"k", now_ms + (ahead_ms if i % 4 == 0 else 0)) for i in range(40)]
    produce(dict(spec.kafka), spec.right.topic, few)

    goes_on = reader.latest(start)
    produce(dict(spec.kafka), spec.right.topic, [Put(0, b"k", now_ms + ahead_ms)] * 40)

    assert goes_on["number"] == start["number"] + 1
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(reader.latest, goes_on)
        wait_until(lambda: held.done() or "33 records of partition 0" in caplog.text)
        stop.set()
        assert held.result() == goes_on
    reader.disconnect()
    assert "33 records of partition 0" in caplog.text


def steps(spec: FeedSpec, monkeypatch: pytest.MonkeyPatch, hours: int) -> list[Any]:
    """A feeder looks while its clock is hours off, and when it is right again: the batches that it plans, after one."""
    right_ms, stop = wall_ms, threading.Event()
    reader = FeedReader(spec, ReaderControl(stopping=stop.is_set))
    start = reader.latest({})
    produce(dict(spec.kafka), spec.right.topic, [Put(0, b"k", wall_ms())])
    with monkeypatch.context() as patched:
        patched.setattr("teacup.base.now.wall_ms", lambda: right_ms() + hours * HOUR_MS)
        timer = threading.Timer(2.5, stop.set)
        timer.start()
        during = reader.latest(start)
        timer.join()
    stop.clear()
    after = reader.latest(start)
    reader.disconnect()
    assert during == start
    return [start, after]


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_steps_holds_the_feeder(
    spec: FeedSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """It goes on once the clock is right. A listing hours ahead would hold it until then."""
    start, after = steps(spec, monkeypatch, hours)

    assert f"the wall clock has jumped by 7200 s {'ahead' if hours > 0 else 'behind'}" in caplog.text
    assert after["number"] == start["number"] + 1
    assert after["listed_ms"] <= wall_ms()


def test_a_clock_that_is_behind_at_the_start_holds_the_feeder(
    spec: FeedSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By it, what lies below the start would be older than it is: joins would look in vain for what was never fed."""
    stop, right_ms = threading.Event(), wall_ms
    produce(dict(spec.kafka), spec.right.topic, [Put(0, b"k", wall_ms())] * 40)
    monkeypatch.setattr("teacup.base.now.wall_ms", lambda: right_ms() - 2 * HOUR_MS)
    reader = FeedReader(replace(spec, start="latest"), ReaderControl(stopping=stop.is_set))
    timer = threading.Timer(2.5, stop.set)
    timer.start()

    held = reader.latest({})
    timer.join()
    reader.disconnect()

    assert held == {}
    assert "33 records of partition 0" in caplog.text


def test_canary_without_the_monotonic_clock_a_feeder_plans_by_the_wrong_one(
    spec: FeedSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The safeguard is switched off."""
    monkeypatch.setattr(WallClock, "read", lambda self, wall_ms, _: ClockReading(wall_ms, Trust.AGREED))

    with pytest.raises(AssertionError):
        steps(spec, monkeypatch, 2)


def test_a_partition_that_is_new_under_available_now_is_read_by_the_next_run(spec: FeedSpec) -> None:
    """A run feeds what its first look found; the partition's records are not lost."""
    kafka, topic, now_ms = dict(spec.kafka), spec.right.topic, wall_ms()
    reader = FeedReader(spec, ReaderControl())
    reader.available_now()
    begun = reader.latest({})
    add_partitions(kafka, topic, 3)
    produce(kafka, topic, [Put(p, b"k", now_ms) for p in (0, 2)])

    within = reader.latest(begun)
    reader.disconnect()
    following = FeedReader(spec, ReaderControl())
    following.available_now()
    after = following.latest(within)
    following.disconnect()

    assert within == begun
    spans = FeedBatch.from_json(after).spans
    assert [(p, span.start, span.end) for p, span in spans.items()] == [(0, 0, 1), (1, 0, 0), (2, 0, 1)]


def test_without_a_dead_letter_topic_a_bad_record_stops_the_feeder(spec: FeedSpec) -> None:
    """Nothing is dropped silently."""
    now_ms = wall_ms()
    produce(dict(spec.kafka), spec.right.topic, [Put(0, b"future", now_ms + HOUR_MS)])

    with pytest.raises(TaskEnded, match=r"NoDeadLetterTopic: .*-0 offset 0 .*future_time"):
        Feeding(spec).feed()  # the task itself reports it, because Spark would retry one that raises


def test_a_feeder_that_begins_later_informs_the_store_and_one_in_another_store_stops(
    spec: FeedSpec, tmp_path: Path
) -> None:
    """`start: latest` raises `retained_from`; a wiped store is noticed by its generation."""
    from joins.lookup.feed.stage import feed_client

    at = replace(spec.storage, namespace="start")
    late = replace(spec, start="latest", storage=at)
    now_ms = wall_ms()
    produce(dict(spec.kafka), spec.right.topic, [Put(0, b"before", now_ms)])

    feeding = Feeding(late)
    feeding.feed()

    with feed_client(late) as client:
        assert client.namespace("start").retained_from == now_ms + 101
    assert stored(late, b"before") == []
    with server_here(tmp_path / "other", namespaces=[{"name": "start", "retention": "1h"}]) as url:
        produce(dict(spec.kafka), spec.right.topic, [Put(0, b"after", now_ms)])
        feeding.spec = replace(late, storage=replace(at, url=url))
        with pytest.raises(StoreWiped, match="namespace 'start'"):
            feeding.feed()
    assert BrokerLog(spec.right.topic, spec.kafka).ends()[0].stable == 2
