"""The lookup join on real parts, in situations in which it waits, fails and continues."""

import pytest
from pyspark.errors import StreamingQueryException

import joins
from joins import Policy
from joins.testing import oracle
from kafkaio.now import wall_ms
from tests.joins.lookup.conftest import RETENTION_MS
from tests.support.sparkjoin import Put, drained, history, produce


def put_left(spec, puts):
    produce(dict(spec.kafka), spec.left.topic, puts)


def events(start, count=300):
    left = [Put(0, None if i % 17 == 0 else b"%d" % (i % 50), start + 40 * i) for i in range(count)]
    right = [Put(0, b"%d" % (i % 70), start + 50 * i, None if i % 3 == 0 else b"v") for i in range(count)]
    return left, right


def test_a_backlog_equals_the_oracle(spark, world, join, tmp_path):
    """Repeated keys, null keys and values, every candidate of a key, several batches; as a library gives it."""
    left, right = events(wall_ms() - 600_000)
    spec = join(policy=Policy.ALL, max_records=100, storage={"keys_per_request": 7})
    put_left(spec, left)

    with world.storage_running():
        world.feed(right)
        world.publish("stored", wall_ms() - 1_000)
        run = drained(joins.lookup_join(spark, spec), tmp_path)

    assert {row["outcome"] for row in run.rows} == {"matched", "unmatched"}
    assert run.results() == oracle.join(history(spec, left, right), spec)


def test_left_holds_without_a_delay_and_continues_by_itself(world, join, running):
    """An unknown delay holds it, a store that is killed and restarted is waited for, nothing is lost."""
    start = wall_ms() - 600_000
    left, right = events(start)
    spec = join(max_records=100)
    put_left(spec, left)

    with running(spec) as run:
        world.publish("stored", None, "the broker does not answer")
        with world.storage_running():
            world.feed(right)
            world.publish("stored", start + 5_000)
            run.until(lambda run: len(run.results()) >= 20, "the first left records are out")
        assert all(row["left_time"] + spec.after_ms < start + 5_000 for row in run.rows)
        world.publish("stored", wall_ms() - 1_000)
        with world.storage_running():
            run.until_left(len(left))

    assert run.results() == oracle.join(history(spec, left, right), spec)


def test_left_older_than_the_store_keeps_stops_with_the_remedy(world, join, running):
    """The namespace keeps an hour, the left record is older."""
    spec = join()
    put_left(spec, [Put(0, b"k", wall_ms() - RETENTION_MS - 60_000)])

    with world.storage_running():
        world.publish("stored", wall_ms() - 1_000)
        with running(spec) as run, pytest.raises(StreamingQueryException, match="on_expired: unmatched"):
            run.until_left(1)

    assert not run.rows


def test_any_dataframe_is_looked_up_once_right_is_stored(spark, world, join):
    """Its columns stay, right's and the outcome come beside them."""
    time_ms = wall_ms() - 60_000
    spec = join()
    frame = spark.createDataFrame(
        [("a", time_ms, 1), ("b", time_ms, 2), (None, time_ms, 3)], "key string, time bigint, n int"
    )

    with world.storage_running():
        world.feed([Put(0, b"a", time_ms)])
        world.publish("stored", wall_ms() - 1_000)
        rows = joins.lookup(frame, spec, wait_at_most_s=30).orderBy("n").collect()

    assert [(r.n, r.right_value, r.outcome, r.reason) for r in rows] == [
        (1, bytearray(b"v"), "matched", None),
        (2, None, "unmatched", "no_candidate"),
        (3, None, "unmatched", "null_key"),
    ]
