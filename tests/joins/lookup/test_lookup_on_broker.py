"""The lookup join on real parts: as a library gives it, and where it waits and continues."""

import joins
from joins import Policy
from joins.testing import oracle
from teacup.base.now import wall_ms
from tests.joins.lookup.conftest import events, put_left
from tests.support.sparkjoin import Put, drained, history


def test_a_backlog_equals_the_oracle(spark, world, join, tmp_path):
    """Repeated keys, null keys and values, every candidate of a key, several batches; as a library gives it."""
    left, right = events(wall_ms() - 600_000)
    spec = join(policy=Policy.ALL, max_records=100, storage={"keys_per_request": 7})
    put_left(spec, left)

    with world.storage_here():
        world.feed(right)
        world.publish("stored", wall_ms() - 1_000)
        run = drained(joins.lookup_join(spark, spec), tmp_path)

    assert {row["outcome"] for row in run.rows} == {"matched", "unmatched"}
    assert run.results() == oracle.join(history(spec, left, right), spec)


def test_left_holds_without_a_delay_and_continues_by_itself(world, join, driven):
    """An unknown delay holds it, a store that is killed and restarted is waited for, nothing is lost."""
    start = wall_ms() - 600_000
    left, right = events(start)
    spec = join(max_records=100)
    put_left(spec, left)

    run = driven(spec)
    world.publish("stored", None, "the broker does not answer")
    with world.storage_here():
        world.feed(right)
        run.until_quiet()
        assert not run.rows
        world.publish("stored", start + 5_000)
        run.until_left(20)
    assert all(row["left_time"] + spec.right.after_ms < start + 5_000 for row in run.rows)
    world.publish("stored", wall_ms() - 1_000)
    run.until_quiet()
    with world.storage_here():
        run.until_left(len(left))

    assert run.results() == oracle.join(history(spec, left, right), spec)


def test_any_dataframe_is_looked_up_once_right_is_stored(spark, world, join):
    """Its columns stay, right's and the outcome come beside them."""
    time_ms = wall_ms() - 60_000
    spec = join()
    frame = spark.createDataFrame(
        [("a", time_ms, 1), ("b", time_ms, 2), (None, time_ms, 3)], "key string, time bigint, n int"
    )

    with world.storage_here():
        world.feed([Put(0, b"a", time_ms)])
        world.publish("stored", wall_ms() - 1_000)
        rows = joins.lookup_frame(frame, spec, wait_at_most_s=30).orderBy("n").collect()

    assert [(r.n, r.right_value, r.outcome, r.reason) for r in rows] == [
        (1, bytearray(b"v"), "matched", None),
        (2, None, "unmatched", "no_candidate"),
        (3, None, "unmatched", "null_key"),
    ]
