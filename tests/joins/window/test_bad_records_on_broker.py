"""One bad record, or a wrong clock, on a real broker: the rows of all others are what they would be without it.

Timely records have a unique key on each side (`k7` and `k7`), so each has one correct answer: left offset and right
offset of the same key. Records with wrong times have keys of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from datadelay.watermark import Idle
from joins.errors import DataLoss
from joins.spec import Format, JoinSpec, Side
from tests.support.driving import Driven, StoppedClock
from tests.support.making import joined
from tests.support.sparkjoin import Put, produce

STEP_MS = 20
HOUR_MS = 60 * 60_000
Record = tuple[bytes, int]
"""Key and event time."""
Join = Callable[..., JoinSpec]


@pytest.fixture
def clock(monkeypatch) -> StoppedClock:
    return StoppedClock(monkeypatch)


@pytest.fixture
def join(kafka, topic_factory) -> Join:
    """`join(payload=True, **spec)`: a join over two new topics, with times in the payload or of Kafka.

    stamped  the broker stamps the records
    """

    def make(payload: bool = True, stamped: bool = False, **values: Any) -> JoinSpec:
        times = {"time": "$.at", "format": Format.JSON} if payload else {}
        config = {"message.timestamp.type": "LogAppendTime"} if stamped else {}
        return joined(
            **{
                "name": "test",
                "left": Side(topic=topic_factory(config=config, prefix="left"), disorder_ms=200, **times),
                "right": Side(topic=topic_factory(config=config, prefix="right"), disorder_ms=200, **times),
                "before_ms": 2_000,
                "after_ms": 1_000,
                "producer_delay_ms": 10_000,
                "watermark_every_ms": 200,
                "kafka": kafka,
                **values,
            }
        )

    return make


def put(spec: JoinSpec, left: Sequence[Record] = (), right: Sequence[Record] = (), *, now_ms: int = 0) -> None:
    """Append records; one with its time in the payload is stamped with `now_ms`, where it is given."""
    for side, records in ((spec.left, left), (spec.right, right)):
        puts = [
            Put(0, key, now_ms or max(at, 1), b'{"at": %d}' % at) if side.payload_time else Put(0, key, at)
            for key, at in records
        ]
        if puts:
            produce(dict(spec.kafka), side.topic, puts)


def delete_all(spec: JoinSpec) -> None:
    """As retention does."""
    admin = AdminClient(dict(spec.kafka))
    for topic in (spec.left.topic, spec.right.topic):
        for deleted in admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values():
            deleted.result(30)


def timely(start_ms: int, count: int, first: int = 0) -> list[Record]:
    return [(b"k%d" % i, start_ms + STEP_MS * i) for i in range(first, first + count)]


def with_times(records: Sequence[Record], changed: dict[int, int]) -> list[Record]:
    """Replace the records at these offsets by others with these times."""
    return [(b"wrong%d" % i, changed[i]) if i in changed else record for i, record in enumerate(records)]


def pairs(left: Sequence[Record], right: Sequence[Record]) -> dict[int, int]:
    """What a join without disorder, deletions and clocks would match: left offset -> right offset, by key."""
    at = {key: offset for offset, (key, _) in enumerate(right) if key.startswith(b"k")}
    return {offset: at[key] for offset, (key, _) in enumerate(left) if key in at}


@pytest.mark.parametrize("wrong", ["6 s late", "no time"])
def test_start_at_a_time_reads_all_left_records_from_there(join: Join, clock: StoppedClock, tmp_path: Path, wrong: str):
    """The record in the middle, where a bisection looks first, has a wrong time."""
    start = clock.now_ms - 600_000
    spec = join(start=start + 251 * STEP_MS)
    right = timely(start, 1_000)
    left = with_times(right, {500: right[500][1] - 6_000 if wrong == "6 s late" else -1})
    put(spec, left, right)

    run = Driven(spec, tmp_path).drain()

    assert set(range(251, 1_000)) - run.matched.keys() == {500}
    assert run.matched.items() <= pairs(left, right).items()
    assert [r["left_offset"] for r in run.about("dead_letter")] == ([500] if wrong == "no time" else [])


@pytest.mark.parametrize("wrong", ["30 s late", "no time", "1970", "30 s late, in a poisoned index"])
def test_start_earliest_reads_all_that_left_needs_of_right(join: Join, clock: StoppedClock, tmp_path: Path, wrong: str):
    """The one in the middle has a wrong time. With Kafka's timestamps, once one from the future has spoilt the broker's
    index."""
    poisoned = wrong.endswith("index")
    start = clock.now_ms - 600_000
    spec = join(payload=not poisoned)
    left = timely(start + 500 * STEP_MS, 1_000, 0)
    old = [(b"old%d" % i, start + STEP_MS * i) for i in range(500)]
    changed = {750: {"no time": -1, "1970": 0}.get(wrong, left[0][1] - 30_000)}
    if poisoned:
        changed[10] = clock.now_ms + HOUR_MS // 2
    right = with_times([*old, *left], changed)
    put(spec, left, right)

    run = Driven(spec, tmp_path).drain()

    assert run.matched == pairs(left, right)
    assert [r["left_offset"] for r in run.about("unmatched")] == [250]  # whose right record has the wrong time


@pytest.mark.parametrize("lost", [(), (".slice",), (".slice", ".marks", ".json")])
@pytest.mark.parametrize("wrong", ["30 s late", "no time"])
def test_a_restart_finds_the_window_behind_a_bad_last_record(
    join: Join, clock: StoppedClock, tmp_path: Path, wrong: str, lost: Sequence[str]
):
    """Whatever the machine has lost of it: slices, marks, the facts of the batch."""
    start = clock.now_ms - 8_000
    spec = join(before_ms=20_000)  # what is 30 s late has left the window long ago
    right = timely(start, 200)
    put(spec, right=[*right, (b"wrong", -1 if wrong == "no time" else start - 30_000)])
    run = Driven(spec, tmp_path).until_quiet()
    assert run.summaries[-1].window_records >= 200

    run.restart(losing=lost)
    put(spec, left=timely(start, 200))
    clock.go_on(10_000)
    run.drain()

    assert run.matched == pairs(right, right)
    assert run.about("unmatched") == []


def test_a_batch_run_again_on_empty_files_gives_its_rows_again(join: Join, clock: StoppedClock, tmp_path: Path):
    """Every batch of a history in which one record in four has a wrong time: also the last one of some batches."""
    start = clock.now_ms - 600_000
    spec = join(before_ms=10_000, max_records=400)
    chance = random.Random(4)
    good = timely(start, 1_200)
    left, right = (
        with_times(
            good,
            {i: chance.choice((-1, 0, good[i][1] - 30_000)) for i in range(1_200) if chance.random() < 0.25},
        )
        for _ in range(2)
    )
    put(spec, left, right)
    run = Driven(spec, tmp_path).drain()
    assert pairs(left, right).items() <= run.matched.items()
    assert len(run.batches) > 5

    for batch in run.batches:
        again = run.again_on_nothing(batch)
        assert sorted(again, key=repr) == sorted(batch.rows, key=repr)


@pytest.mark.parametrize("on_data_loss", ["stop", "continue"])
def test_a_lost_window_folder_whose_records_retention_has_deleted(
    join: Join, clock: StoppedClock, tmp_path: Path, on_data_loss: str
):
    """None of it is needed any more: with facts beside the checkpoint the join continues, without them it says so."""
    spec = join(payload=False, on_data_loss=on_data_loss)
    records, more = timely(clock.now_ms - 600_000, 200), timely(clock.now_ms + 70_000, 50, first=1_000)
    put(spec, records, records)
    runs = [
        Driven(spec, tmp_path / name, facts).drain() for name, facts in (("kept", tmp_path / "facts"), ("lost", None))
    ]
    clock.go_on(60_000)
    for run in runs:
        run.until_quiet()  # the window expires
    delete_all(spec)
    put(spec, more, more)
    clock.go_on(120_000)
    for run in runs:
        run.restart(losing=(".slice", ".marks", ".json"))
    kept, lost = runs

    assert kept.drain().matched == pairs([*records, *more], [*records, *more])
    with pytest.raises(DataLoss, match="facts"):
        lost.until_quiet()


def test_late_left_records_make_no_timely_one_unmatched(join: Join, clock: StoppedClock, tmp_path: Path):
    """One in a hundred is two minutes late, in batches of 400. Right has more records: left's stretches are longer."""
    start = clock.now_ms - 600_000
    spec = join(max_records=400)
    chance = random.Random(5)
    good = timely(start, 800)
    right = [record for key, at in good for record in ((key, at), (b"other", at + 7), (b"other", at + 14))]
    left = with_times(good, {i: good[i][1] - 120_000 for i in range(800) if chance.random() < 0.01})
    put(spec, left, right)

    run = Driven(spec, tmp_path).drain()

    assert run.matched == pairs(left, right)
    assert len(run.results()) == 800


def test_a_dead_letter_from_the_future_moves_nothing_when_its_time_has_come(
    join: Join, clock: StoppedClock, tmp_path: Path
):
    """A right record 8 s ahead, where 3 s are tolerated."""
    start = clock.now_ms - 4_000
    spec = join(payload=False, max_future_skew_ms=3_000)
    before, after = timely(start, 200), timely(start, 50, first=400)
    put(spec, before, [*before, (b"wrong", clock.now_ms + 8_000)])
    run = Driven(spec, tmp_path).until_quiet()
    assert [(r["right_offset"], r["reason"]) for r in run.about("dead_letter")] == [(200, "future_time")]

    clock.go_on(6_000)
    put(spec, left=after)
    run.until_quiet()
    clock.go_on(1_500)
    run.until_quiet()
    put(spec, right=after)
    clock.go_on(20_000)
    run.drain()

    assert run.matched == pairs([*before, *after], [*before, (b"wrong", 0), *after])
    assert len(run.about("dead_letter")) == 1
    assert run.about("unmatched") == []


def test_a_record_ahead_of_its_append_moves_nothing_live_or_replayed(join: Join, clock: StoppedClock, tmp_path: Path):
    """30 s ahead: a dead letter when read live, not when read later. Left's rows are the same."""
    start = clock.now_ms
    spec = join(payload=False, max_future_skew_ms=3_000, max_records=300)
    right = timely(start, 1_000)
    left = list(right)
    wrong_at = 350
    right.insert(wrong_at, (b"wrong", start + STEP_MS * wrong_at + 30_000))
    live = Driven(spec, tmp_path / "live")

    for first in range(0, 1_000, 250):  # 5 s each; right comes after left
        clock.go_on(STEP_MS * 250)
        behind = int(first > wrong_at)
        put(spec, left=left[first : first + 250])
        live.until_quiet()
        put(spec, right=right[first + behind : first + 250 + int(first + 250 > wrong_at)])
        live.until_quiet()
    clock.go_on(20_000)
    live.drain()
    clock.go_on(600_000)
    replay = Driven(spec, tmp_path / "replay").drain()

    assert live.results() == replay.results()
    assert live.matched == pairs(left, right)
    assert len(live.results()) == 1_000
    assert [r["right_offset"] for r in live.about("dead_letter")] == [wrong_at]


def test_in_a_replay_a_lone_record_ahead_lets_no_left_record_go(join: Join, clock: StoppedClock, tmp_path: Path):
    """No clock shows that it is ahead, only its neighbours: left waits until right has really come."""
    start = clock.now_ms
    spec = join(payload=False, idle=Idle.HOLD)
    left, right = timely(start, 1_100), with_times(timely(start, 1_000), {900: start + STEP_MS * 900 + 30_000})
    more = timely(start, 300, first=1_000)
    put(spec, left, right)
    clock.go_on(STEP_MS * 1_100 + 60_000)

    run = Driven(spec, tmp_path).until_quiet()
    gone = len(run.results())
    put(spec, right=more)
    run.until_quiet()

    assert gone < 1_000
    assert run.matched == pairs(left, [*right, *more])
    assert len(run.results()) == 1_100


@pytest.mark.parametrize("by_s", [60, -3_600])
def test_a_clock_that_is_wrong_at_one_planning_holds_the_join(
    join: Join, clock: StoppedClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, by_s: int
):
    """If it is ahead, right's watermark would pass left's records; if behind, all of them would be dead letters."""
    start = clock.now_ms - 2_000
    spec = join(payload=False)
    records = timely(start, 101)
    put(spec, records[:1], records[:1])
    run = Driven(spec, tmp_path).until_quiet()
    put(spec, left=records[1:])

    clock.set_wrong(by_s * 1_000)
    run.until_quiet()
    assert f"holds: the wall clock has jumped by {abs(by_s)} s {'ahead' if by_s > 0 else 'behind'}" in caplog.text
    put(spec, right=records[1:])
    clock.go_on(20_000)
    run.drain()

    assert run.matched == pairs(records, records)
    assert len(run.rows) == 101


def test_a_clock_that_was_behind_from_the_start_holds_the_join(
    join: Join, clock: StoppedClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Only the records contradict it: most of them would be from the future."""
    start = clock.now_ms - 60_000
    spec = join(payload=False)
    records = timely(start, 101)
    put(spec, records, records)

    clock.set_wrong(-HOUR_MS)
    run = Driven(spec, tmp_path)
    clock.set_wrong(-HOUR_MS, meanwhile=run.stop)
    run.until_quiet()
    assert run.batches == []
    assert "ahead of this machine's clock" in caplog.text
    run.restart()
    run.drain()

    assert run.matched == pairs(records, records)
    assert run.about("dead_letter") == []


def test_a_clock_that_was_ahead_from_the_start_holds_the_join_where_brokers_stamp_records(
    join: Join, clock: StoppedClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """By it all of left could go before its right has come. The broker's clock contradicts it with the first record."""
    spec = join(payload=False, stamped=True)
    records = timely(0, 101)
    put(spec, records[:1], records[:1])
    clock.go_on(60_000)
    run = Driven(spec, tmp_path).until_quiet()
    before = len(run.rows)
    put(spec, left=records[1:])

    for _ in range(2):
        clock.set_wrong(0)
    clock.set_wrong(0, meanwhile=run.stop)
    run.until_quiet()

    assert len(run.rows) == before
    assert "the wall clock is" in caplog.text
    assert "ahead against the broker's" in caplog.text
