"""The in-memory join on a real broker, in the situations in which joins break.

It is driven in the test's process, but for two tests: that of a program's DataFrame, and that of Spark's checkpoint.
"""

from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition

from joins import DataLoss, NotCoPartitioned, SpecChanged, window_join
from joins.plan.start.copartition import with_path
from joins.spec import Format, JoinPath, Policy, Side
from joins.testing import oracle
from teacup.base.now import wall_ms
from teacup.base.times import iso
from tests.support.driving import Driven, StoppedClock
from tests.support.making import changed, joined
from tests.support.sparkjoin import Put, drained, history, produce, run_of_all

HALF_AN_HOUR_MS = 30 * 60_000


@pytest.fixture
def clock(monkeypatch):
    return StoppedClock(monkeypatch)


@pytest.fixture
def join(kafka, topic_factory):
    """`join(partitions=1, **spec)`: the description of a join over two new topics, with a short producer delay."""

    def make(partitions=1, **values):
        return joined(
            **{
                "name": "test",
                "left": Side(topic=topic_factory(partitions, prefix="left"), disorder_ms=0),
                "right": Side(topic=topic_factory(partitions, prefix="right"), disorder_ms=0),
                "before_ms": 2_000,
                "after_ms": 1_000,
                "producer_delay_ms": 1_000,
                "watermark_every_ms": 200,
                "kafka": kafka,
                **values,
            }
        )

    return make


def put(spec, left=(), right=()):
    if left:
        produce(dict(spec.kafka), spec.left.topic, left)
    if right:
        produce(dict(spec.kafka), spec.right.topic, right)


def transaction_with_right(spec, time_ms):
    """Writes a right record in a transaction; returns the producer, which has not ended it."""
    producer = Producer(
        {**spec.kafka, "transactional.id": f"open-{spec.right.topic}", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(spec.right.topic, b"v", b"k", 0, timestamp=time_ms)
    producer.flush()
    return producer


def test_a_backlog_equals_the_oracle(join, clock, tmp_path):
    """Repeated keys, null keys, null values, two partitions, several batches, every policy."""
    start = clock.now_ms - 600_000
    spec = join(2, max_records=300)
    left = [Put(i % 2, None if i % 17 == 0 else b"%d-%d" % (i % 2, i % 5), start + 40 * i) for i in range(600)]
    right = [
        Put(i % 2, None if i % 19 == 0 else b"%d-%d" % (i % 2, i % 7), start + 50 * i, None if i % 3 == 0 else b"v")
        for i in range(500)
    ]
    put(spec, left, right)

    for policy in Policy:
        wanted = changed(spec, policy=policy)
        run = Driven(wanted, tmp_path / policy).drain()

        assert len(run.batches) > 2
        assert run.results() == oracle.join(history(spec, left, right), wanted)


@pytest.mark.parametrize("path", JoinPath)
def test_a_topic_joined_with_itself_equals_the_oracle(join, clock, tmp_path, topic_factory, path):
    """Each side reads on where it is; records of one time, several batches, a restart that loses the windows."""
    start = clock.now_ms - 600_000
    both = topic_factory(2, prefix="both")
    records = [
        Put(i % 2, None if i % 17 == 0 else b"%d-%d" % (i % 2, i % 5), start + 80 * (i // 3)) for i in range(600)
    ]
    spec = changed(
        join(max_records=200), left=Side(topic=both, disorder_ms=0), right=Side(topic=both, disorder_ms=0), path=path
    )
    produce(dict(spec.kafka), both, records)

    for policy in (Policy.NEAREST, Policy.LAST, Policy.ALL):
        wanted = changed(spec, policy=policy)
        run = Driven(wanted, tmp_path / policy)
        run.step()
        run.restart(losing=(".slice", ".marks", ".json"))
        run.drain()

        assert len(run.batches) > 2
        assert run.results() == oracle.join(history(spec, records, records), wanted)


def test_far_apart_topics_do_not_deadlock_and_the_window_stays_small(join, clock, tmp_path):
    """Left jumps ahead of right by an hour: right passes through, and only the join's span stays in memory."""
    start = clock.now_ms - 3_700_000
    spec = join(max_records=400)
    left = [Put(0, b"k", start + i) for i in range(50)] + [Put(0, b"k", start + 3_600_000 + i) for i in range(50)]
    right = [Put(0, b"k", start + i * 900) for i in range(4_000)]
    put(spec, left, right)

    run = Driven(spec, tmp_path).until_quiet()

    assert run.results() == oracle.join(history(spec, left, right), spec)
    assert run.largest_window < 100


def test_right_far_ahead_leaves_the_window_bounded_by_the_span(join, clock, tmp_path):
    """All of right is there, left has only started: right is read in step with left, not to its end."""
    start = clock.now_ms - 3_700_000
    spec = join(max_records=400)
    left = [Put(0, b"k%d" % i, start + i * 1_000) for i in range(3_000)]
    right = [Put(0, b"k%d" % i, start + i * 1_000) for i in range(3_500)]
    put(spec, left, right)

    run = Driven(spec, tmp_path).until_quiet()

    assert run.results() == oracle.join(history(spec, left, right), spec)
    # The last batch has read left to its end: right is read to its own, because left's partition watermark follows the
    # clock.
    assert max(s.window_records for s in run.summaries if s.rows.get("matched")) < 600


def test_an_idle_partition_and_an_empty_topic_do_not_stall(join, clock, tmp_path):
    """Right has nothing in one partition, and left is written there after the producer delay."""
    spec = join(2)
    start = clock.now_ms - 5_000
    left = [Put(p, b"%d" % p, start + i) for i in range(20) for p in (0, 1)]
    right = [Put(0, b"0", start)]
    put(spec, left, right)

    run = Driven(spec, tmp_path).until_quiet()

    assert {(r.left_partition, r.outcome) for r in run.results()} == {(0, "matched"), (1, "unmatched")}


def test_an_idle_left_partition_lets_the_window_expire(join, clock, tmp_path):
    """Nothing comes on left: right records still leave the window, as unjoined."""
    spec = join()
    start = clock.now_ms - 60_000
    put(spec, [Put(0, b"k", start)], [Put(0, b"k", start), Put(0, b"x", start + 1), Put(0, b"y", start + 40_000)])

    run = Driven(spec, tmp_path).until_quiet()

    assert [r["right_offset"] for r in run.about("unjoined")] == [1, 2]


def test_as_a_library_it_gives_results_alone(spark, join, tmp_path):
    """Unjoined right records only on request; copies of late ones, which jobs send to side topics, never."""
    start = wall_ms() - 600_000
    spec = join()
    left = [Put(0, b"k", start + 1_000 * i) for i in range(20)]
    right = [Put(0, b"k", start), Put(0, b"other", start + 9_000), Put(0, b"k", start + 5_000)]  # the last one is late
    put(spec, left, right)

    for unjoined, outcomes in ((False, {"matched", "unmatched"}), (True, {"matched", "unmatched", "unjoined"})):
        folder = tmp_path / str(unjoined)
        run = drained(window_join(spark, spec, unjoined=unjoined, windows=folder / "windows"), folder)

        assert len(run.results()) == len(left)
        assert {row["outcome"] for row in run.rows} == outcomes


def test_a_pause_of_right_holds_left_until_right_is_there(join, clock, tmp_path):
    """Right is late by less than the producer delay: left waits, and is matched."""
    spec = join(producer_delay_ms=8_000)
    at = clock.now_ms
    put(spec, [Put(0, b"k", at)])

    run = Driven(spec, tmp_path).until_quiet()
    clock.go_on(7_000)
    held = run.until_quiet().results()
    put(spec, right=[Put(0, b"k", at + 500)])
    clock.go_on(4_000)
    run.until_quiet()

    assert held == []
    assert run.results()[0].outcome == "matched"


def test_an_open_transaction_on_right_holds_left(join, clock, tmp_path):
    """A record in an open transaction may be the match: left waits for the commit, longer than the producer delay."""
    spec = join(producer_delay_ms=200)
    at = clock.now_ms - 2_000
    producer = transaction_with_right(spec, at)
    put(spec, [Put(0, b"k", at)])

    run = Driven(spec, tmp_path).until_quiet()
    clock.go_on(10_000)
    held = run.until_quiet().results()
    producer.commit_transaction()
    run.until_left(1)

    assert held == []
    assert run.results()[0].outcome == "matched"


def test_max_wait_lets_left_pass_a_stuck_right(join, clock, tmp_path):
    """Right hangs in a transaction for ever: after max_wait left is written as right_stalled."""
    spec = join(max_wait_ms=1_500, producer_delay_ms=0)
    at = clock.now_ms - 2_000
    producer = transaction_with_right(spec, at)
    put(spec, [Put(0, b"k", at)])

    run = Driven(spec, tmp_path).until_quiet()
    held = run.results()
    clock.go_on(1_501)
    run.until_quiet()
    producer.abort_transaction()

    assert held == []
    assert run.results()[0].reason == "right_stalled"


def test_records_from_the_future_are_dead_letters_and_move_nothing(join, clock, tmp_path):
    """One record half an hour ahead on each side poisons the broker's index for every later look-up."""
    spec = join(max_records=50)
    start = clock.now_ms - 600_000
    left = [Put(0, b"k%d" % i, start + i * 100) for i in range(200)]
    right = [Put(0, b"k%d" % i, start + i * 100) for i in range(200)]
    put(
        spec,
        [*left[:20], Put(0, b"f", clock.now_ms + HALF_AN_HOUR_MS), *left[20:]],
        [*right[:10], Put(0, b"f", clock.now_ms + HALF_AN_HOUR_MS), *right[10:]],
    )

    run = Driven(spec, tmp_path).drain()

    dead = {
        ("left", r["left_offset"]) if r["left_offset"] is not None else ("right", r["right_offset"])
        for r in run.about("dead_letter")
    }
    assert dead == {("left", 20), ("right", 10)}
    assert {r["reason"] for r in run.about("dead_letter")} == {"future_time"}
    assert len(run.results()) == 200
    assert all(r.outcome == "matched" for r in run.results())


def test_times_in_the_payload(join, clock, tmp_path, topic_factory):
    """Both sides carry their time in the value; what has none is a dead letter."""
    start = clock.now_ms - 600_000
    sides = {
        name: Side(topic=topic_factory(prefix=name), time="$.at", format=Format.JSON, disorder_ms=300)
        for name in ("left", "right")
    }
    spec = changed(join(max_records=60), **sides)

    def record(i: int, jitter: int) -> Put:
        at = start + i * 100 - jitter
        return Put(0, b"k%d" % i, wall_ms(), b'{"at": %d}' % at)

    put(
        spec,
        [*(record(i, i * 37 % 300) for i in range(100)), Put(0, b"bad", wall_ms(), b"{}")],
        [*(record(i, i * 91 % 300) for i in range(100)), Put(0, b"bad", wall_ms(), b"no json")],
    )

    run = Driven(spec, tmp_path).drain()

    assert len(run.results()) == 100
    assert all(r.outcome == "matched" and r.left_offset == r.right_offset for r in run.results())
    assert sorted(r["reason"] for r in run.about("dead_letter")) == ["invalid_json", "no_time"]


def test_times_in_headers_and_without_a_zone(join, clock, tmp_path, topic_factory):
    """CloudEvents in binary mode, joined with texts of one city; one of them has no time."""
    start = clock.now_ms - 600_000
    left = Side(topic=topic_factory(prefix="left"), time="header:ce_time", disorder_ms=300)
    right = Side(
        topic=topic_factory(prefix="right"), time="$.at", format="json", time_zone="Asia/Tokyo", disorder_ms=300
    )
    spec = changed(join(max_records=60), left=left, right=right)

    def there(i: int) -> bytes:
        return iso(start + i * 100 + 9 * 3_600_000).removesuffix("Z").encode()

    put(
        spec,
        [Put(0, b"k%d" % i, wall_ms(), None, (("ce_time", iso(start + i * 100).lower().encode()),)) for i in range(50)],
        [
            *(Put(0, b"k%d" % i, wall_ms(), b'{"at": "%s"}' % there(i)) for i in range(50)),
            Put(0, b"b", wall_ms(), b"{}"),
        ],
    )

    run = Driven(spec, tmp_path).drain()

    assert [r.outcome for r in run.results()] == ["matched"] * 50
    assert all(r.left_offset == r.right_offset for r in run.results())
    assert [r["reason"] for r in run.about("dead_letter")] == ["no_time"]


def test_a_restart_continues_from_the_checkpoint(spark, join, tmp_path):
    """No row of a committed batch twice, nothing lost, and a lost window is read again."""
    spec = join(max_records=200, before_ms=3_600_000, watermark_every_ms=10_000)

    def part(start: int) -> tuple[list[Put], list[Put]]:
        left = [Put(0, b"k%d" % (i % 40), start + i * 4) for i in range(500)]
        return left, [Put(0, b"k%d" % (i % 50), start + i * 5) for i in range(400)]

    left, right = part(wall_ms() - 4_000)
    put(spec, left, right)
    first = run_of_all(spark, spec, tmp_path)

    more_left, more_right = part(wall_ms())
    put(spec, more_left, more_right)
    for file in (tmp_path / "windows").rglob("*.slice"):
        file.unlink()
    restarted = replace(spec, name="test-again")  # in this process, the windows of the name are still in memory
    second = run_of_all(spark, restarted, tmp_path)

    results = sorted([*first.results(), *second.results()], key=lambda r: r.left_offset)
    assert results == oracle.join(history(spec, [*left, *more_left], [*right, *more_right]), spec)
    assert "log" in {s.restored for s in second.summaries}, [
        (s.number, s.restored, s.read, s.window_records) for s in [*first.summaries, *second.summaries]
    ]


def test_a_run_of_what_is_there_ends_with_left(join, tmp_path):
    """Although the window expires all the while: what is left of it is the next run's."""
    now = wall_ms()
    spec = join(before_ms=10_000, producer_delay_ms=0, watermark_every_ms=1)
    put(spec, [Put(0, b"k", now - 3_000)], [Put(0, b"k", now - 12_000 + 2 * i) for i in range(5_000)])

    run = Driven(spec, tmp_path).drain()

    assert len(run.rows) == 1 + len(run.about("unjoined"))
    assert len(run.batches) <= 3
    assert run.summaries[-1].window_records > 1_000


def test_another_join_on_the_checkpoint_is_refused(join, clock, tmp_path):
    """Naming what has changed."""
    spec = join()
    put(spec, [Put(0, b"k", clock.now_ms - 60_000)], [Put(0, b"k", clock.now_ms - 60_000)])
    run = Driven(spec, tmp_path).drain()

    run.restart(spec=changed(spec, before_ms=5_000))

    with pytest.raises(SpecChanged, match="before_ms: 2000 -> 5000"):
        run.until_quiet()


def test_topics_that_are_not_co_partitioned_are_refused(join):
    """A key that is in different partitions of the two topics, where the direct path is asked for."""
    spec = join(2, path="direct")
    put(spec, [Put(0, b"k", wall_ms())], [Put(1, b"k", wall_ms())])

    with pytest.raises(NotCoPartitioned, match=r"left partition 0 .*right partition 1"):
        with_path(spec)


def test_topics_that_were_empty_are_looked_at_when_they_have_records(join, clock, tmp_path):
    """Before any of these records is joined."""
    spec = join(2, path="direct")
    job = Driven(spec, tmp_path)
    job.until_quiet()
    put(spec, [Put(0, b"k", clock.now_ms)], [Put(1, b"k", clock.now_ms)])

    with pytest.raises(NotCoPartitioned, match=r"left partition 0 .*right partition 1"):
        job.until_quiet()

    assert job.rows == []


def test_a_join_that_has_been_running_starts_again_in_spite_of_a_stray_record(join, clock, tmp_path, caplog):
    """A single record in a wrong partition must not stop it for good."""
    spec = join(2, path="direct")
    job = Driven(spec, tmp_path)
    job.until_quiet()
    start = clock.now_ms - 60_000
    put(spec, [Put(0, b"k", start), Put(0, b"k", start + 30_000)], [Put(1, b"k", start), Put(0, b"k", start + 30_000)])

    job.restart()
    job.drain()

    assert len(job.about("matched")) + len(job.about("unmatched")) == 2
    assert [record.levelname for record in caplog.records if "join key" in record.message] == ["WARNING"]


def test_a_join_that_may_not_go_on_does_not_after_a_restart_either(join, clock, tmp_path):
    """Under a supervisor it would join wrongly from its second start on."""
    spec = join(2, path="direct")
    job = Driven(spec, tmp_path)
    job.until_quiet()
    put(spec, [Put(0, b"%d" % i, clock.now_ms) for i in range(9)], [Put(1, b"%d" % i, clock.now_ms) for i in range(9)])

    for _ in range(2):
        job.restart()
        with pytest.raises(NotCoPartitioned, match="join key"):
            job.until_quiet()

    assert job.rows == []


def test_records_deleted_before_they_were_read_stop_the_join(join, clock, tmp_path, admin):
    """Retention has overtaken the join."""
    spec = join()
    start = clock.now_ms - 60_000
    put(spec, [Put(0, b"k", start)], [Put(0, b"k", start)])
    run = Driven(spec, tmp_path).drain()
    put(spec, [Put(0, b"k", start + 30_000 + i) for i in range(10)])
    admin.delete_records([TopicPartition(spec.left.topic, 0, 5)])[TopicPartition(spec.left.topic, 0)].result(30)

    with pytest.raises(DataLoss, match=rf"{spec.left.topic}-0 below offset 5.*on_data_loss"):
        run.until_quiet()


def test_a_compacted_topic_is_refused(join, topic_factory):
    """Unless compaction leaves records alone for the window and a day."""
    compacted = topic_factory(prefix="compacted", config={"cleanup.policy": "compact"})
    spec = changed(join(), right=Side(topic=compacted))

    with pytest.raises(DataLoss, match=rf"topic '{compacted}' is compacted .*min\.compaction\.lag\.ms"):
        with_path(spec)
