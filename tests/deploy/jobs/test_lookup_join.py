"""`teacup run lookup.yaml` as a process, from the broker to the topic, beside both APIs and the feeder as processes."""

from __future__ import annotations

import json
import os
import signal

import pytest

from deploy.dev.lookupparts import DELAY, FEEDER, LOOKUP, STORAGE, LookupParts, LookupPlan
from joins import JoinSpec, Side
from joins.testing import oracle
from kafkaio.exitcode import ExitCode
from kafkaio.now import wall_ms
from storage.client import StorageClient
from tests.support.jobprocess import forget_last_commit, records
from tests.support.sparkjoin import Put, history, produce

BEFORE_MS, AFTER_MS, DISORDER_MS = 5_000, 1_000, 200
DEADLINE_S = 480.0


def events(start_ms, count):
    """Repeated keys, null keys, right records of which some come out of order, some missing, on two partitions."""
    left = [
        Put(i % 2, None if i % 29 == 0 else b"%d" % (i % 300), start_ms + 10 * i, b'{"n": %d}' % i)
        for i in range(count)
    ]
    right = [
        Put(i % 2, b"%d" % (i % 410), start_ms + 10 * i + (DISORDER_MS if i % 7 == 0 else 0), b'{"r": %d}' % i)
        for i in range(count)
        if i % 5
    ]
    return left, right


@pytest.fixture
def asked():
    """Keys of the join's job file besides those of every test."""
    return {}


@pytest.fixture
def store():
    """The back end's URL; None: the embedded one."""
    return None


@pytest.fixture
def parts(kafka, topic_factory, tmp_path, asked, store):
    """Everything of a lookup join except the jobs, which the test starts."""
    joined = topic_factory(2, prefix="joined")
    output = {"topic": joined, **asked.get("output", {})}
    plan = LookupPlan(
        name=joined,
        kafka=kafka,
        left=topic_factory(2, prefix="left"),
        right=topic_factory(2, prefix="right"),
        joined=joined,
        before_ms=BEFORE_MS,
        after_ms=AFTER_MS,
        disorder_ms=DISORDER_MS,
        collected_every_s=60.0,
        store=store,
        feeder={"trigger": "available_now", "records_per_batch": 500},
        lookup={
            "trigger": {"every": "0s"},
            "records_per_batch": 200,
            "producer_delay": "1s",
            **asked,
            "output": output,
        },
    )
    with LookupParts(tmp_path, plan) as running:
        running.start(STORAGE, DELAY)
        yield running


def expected_of(plan, left, right):
    """By left's position: outcome, reason, and the value of right."""
    spec = JoinSpec(
        name="expected",
        left=Side(topic=plan.left, disorder_ms=DISORDER_MS),
        right=Side(topic=plan.right, disorder_ms=DISORDER_MS),
        before_ms=BEFORE_MS,
        after_ms=AFTER_MS,
    )
    values = {}
    for p in (0, 1):
        values |= {(p, offset): put.value for offset, put in enumerate(put for put in right if put.partition == p)}
    return {
        (row.left_partition, row.left_offset): (
            row.outcome,
            row.reason,
            None if row.right is None else json.loads(values[row.right]),
        )
        for row in oracle.join(history(spec, left, right), spec)
    }


def joined_of(plan):
    """Every row that a `read_committed` reader finds: left's position, and the rest as in `expected_of`."""
    found = []
    for record in records(plan.kafka, plan.joined):
        row = json.loads(record["value"])
        at = row["left"]["position"]
        right = None if row["right"] is None else row["right"]["value"]
        found.append(((at["partition"], at["offset"]), (row["outcome"], row["reason"], right)))
    return found


def kill_9(parts, name):
    """The driver alone, as the out-of-memory killer does: its JVM and workers find out by themselves."""
    os.kill(parts.pid(name), signal.SIGKILL)
    assert parts.ended(name, DEADLINE_S) == 128 + signal.SIGKILL


def fed(parts, count):
    """The events, all produced and the right ones stored, and the delay published."""
    plan = parts.plan
    left, right = events(wall_ms() - 300_000, count)
    produce(plan.kafka, plan.right, right)
    produce(plan.kafka, plan.left, left)
    parts.start(FEEDER)
    assert parts.ended(FEEDER, DEADLINE_S) == ExitCode.DONE
    assert parts.collect() == 0
    return left, right


@pytest.mark.slow
def test_a_job_killed_in_mid_batch_continues_and_every_left_record_is_there_once(parts):
    """kill -9 during a batch; the result is that of brute force, each row once."""
    plan = parts.plan
    left, right = fed(parts, 3_000)

    def through():
        return sum(line["read"]["left"] for line in parts.batches(LOOKUP))

    parts.start(LOOKUP)
    parts.until(lambda: through() > 200, "some left records are through", DEADLINE_S)
    kill_9(parts, LOOKUP)
    killed_at = through()
    parts.start(LOOKUP)
    parts.until(lambda: len(joined_of(plan)) >= len(left), "all left records are out", DEADLINE_S)
    assert parts.stop(LOOKUP) == ExitCode.DONE

    found = joined_of(plan)
    assert killed_at < len(left)
    assert len(found) == len(left)
    assert dict(found) == expected_of(plan, left, right)


DEDUPLICATED = {
    "trigger": "available_now",
    "records_per_batch": 1_000_000,
    "output": {"delivery": "at-least-once", "deduplicate": {"quiet": "100ms"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", [DEDUPLICATED], ids=["deduplicate"])
def test_a_batch_that_was_written_whole_is_dropped_whole(parts):
    """Its commit is removed, so that the next start runs it again, without transactions."""
    plan = parts.plan
    left, right = fed(parts, 400)
    parts.start(LOOKUP)
    assert parts.ended(LOOKUP, DEADLINE_S) == ExitCode.DONE
    forget_last_commit(parts.folder / "lookup-join-checkpoint")

    parts.start(LOOKUP)
    assert parts.ended(LOOKUP, DEADLINE_S) == ExitCode.DONE

    found = joined_of(plan)
    assert sum(line["deduplicator"].get("dropped", 0) for line in parts.batches(LOOKUP)) == len(left)
    assert len(found) == len(left)
    assert dict(found) == expected_of(plan, left, right)


@pytest.mark.slow
def test_left_records_that_the_store_no_longer_covers_end_the_join_without_a_retry(parts):
    """What is gone from the store is gone for the next attempt, too."""
    fed(parts, 50)
    with StorageClient(parts.urls[STORAGE], parts.tokens[STORAGE]) as client:
        client.raise_retained_from(parts.plan.namespace, wall_ms())

    parts.start(LOOKUP)

    assert parts.ended(LOOKUP, DEADLINE_S) == ExitCode.DATA_LOSS
    said = parts.log(LOOKUP).read_text()
    assert "DataLoss: " in said
    assert "Lost task" not in said, "it was retried"
