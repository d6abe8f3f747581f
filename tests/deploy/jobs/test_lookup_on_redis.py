"""Feeder and lookup join as processes, with their store in a Redis server that is killed under both."""

from __future__ import annotations

import pytest

from dev.lookup_parts import FEEDER, LOOKUP
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.support.lookupjob import DEADLINE_S, events, expected_of, joined_of
from tests.support.redis_server import redis_process
from tests.support.sparkjoin import produce


@pytest.fixture
def redis(tmp_path):
    with redis_process(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def store(redis):
    return redis.url()


def killed_once(redis, parts, job, some):
    """The job, running, whose store is killed once `some()` is done, and started again when the job has noticed."""
    parts.start(job)
    parts.until(some, f"the {job} has done something", DEADLINE_S)
    redis.kill()
    parts.until(lambda: "does not answer" in parts.log(job).read_text(), f"the {job} waits for the store", DEADLINE_S)
    redis.start()


@pytest.mark.slow
def test_both_jobs_go_on_after_kill_9_of_the_store_and_every_row_is_right(redis, parts):
    """What was acknowledged before is still there, so nothing is fed again and the join is not held."""
    plan = parts.plan
    left, right = events(wall_ms() - 300_000, 3_000)
    produce(plan.kafka, plan.right, right)
    produce(plan.kafka, plan.left, left)

    killed_once(redis, parts, FEEDER, lambda: parts.batches(FEEDER))
    assert parts.ended(FEEDER, DEADLINE_S) == ExitCode.DONE
    assert parts.collect() == 0
    killed_once(redis, parts, LOOKUP, lambda: parts.batches(LOOKUP))
    parts.until(lambda: len(joined_of(plan)) >= len(left), "all left records are out", DEADLINE_S)
    assert parts.stop(LOOKUP) == ExitCode.DONE

    assert sum(line["stored"] for line in parts.batches(FEEDER)) == len(right)
    found = joined_of(plan)
    assert len(found) == len(left)
    assert dict(found) == expected_of(plan, left, right)
