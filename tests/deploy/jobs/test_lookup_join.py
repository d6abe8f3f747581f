"""`teacup run lookup.yaml` as a process, from the broker to the topic, beside both APIs and the feeder as processes."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from unittest.mock import patch

import pytest

from deploy.cli.rewinds import RewindRequest, rewind_of
from dev.lookup_parts import FEEDER, LOOKUP, STORAGE
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.storage.client import StorageClient
from tests.support.jobprocess import forget_last_commit
from tests.support.lookupjob import (
    DEADLINE_S,
    DISORDER_MS,
    events,
    expected_of,
    joined_of,
)
from tests.support.sparkjoin import produce


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


def rewound(parts, written, time_ms):
    """`teacup rewind` of the lookup join."""
    file = parts.file(LOOKUP)
    to = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    asked = RewindRequest(to=to, written=written, into=None, until=None, undo=False, dry_run=False)
    with patch.dict(os.environ, parts.env):
        return rewind_of(file, asked, run=None)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"trigger": "available_now"}], ids=["once"])
def test_a_job_that_goes_back_in_time_keeps_its_rows_or_writes_them_again(parts):
    """The last batch was not completed, as after a kill."""
    plan = parts.plan
    left, right = fed(parts, 400)
    parts.start(LOOKUP)
    assert parts.ended(LOOKUP, DEADLINE_S) == ExitCode.DONE
    forget_last_commit(parts.folder / "lookup-join-checkpoint")

    assert rewound(parts, "keep", left[0].time_ms) == ExitCode.DONE
    parts.start(LOOKUP)
    assert parts.ended(LOOKUP, DEADLINE_S) == ExitCode.DONE
    kept = joined_of(plan)
    assert rewound(parts, "again", left[300].time_ms) == ExitCode.DONE
    parts.start(LOOKUP)
    assert parts.ended(LOOKUP, DEADLINE_S) == ExitCode.DONE

    again, expected = joined_of(plan), expected_of(plan, left, right)
    assert len(kept) == len(left)
    assert dict(kept) == expected
    assert all(row == expected[position] for position, row in again)
    from_ms = left[300].time_ms
    fewest, most = (sum(put.time_ms >= at_ms for put in left) for at_ms in (from_ms, from_ms - DISORDER_MS))
    assert fewest <= len(again) - len(kept) <= most
