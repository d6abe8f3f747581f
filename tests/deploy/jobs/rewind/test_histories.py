"""Random histories of a rewound join on a real broker: each left record has the rows that the commands promise."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.checkpoint.lock import checkpoint_lock
from deploy.errors import CheckpointInUse
from deploy.jobs.rewind import rewind as command
from deploy.jobs.rewind.rewind import WrittenRows
from joins.errors import DataLoss
from joins.spec import Policy
from tests.conftest import TopicFactory
from tests.crash.traffic import PARTITIONS, START_MS
from tests.deploy.jobs.conftest import here
from tests.deploy.jobs.rewind.checks import check_audit, check_explained
from tests.deploy.jobs.rewind.histories import ROLES, Rewound, lefts
from tests.support.jobhere import JobsHere
from tests.support.jobprocess import JobProcess

__all__ = ["here"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_000)]
SEEDS = range(6)
STEPS = 7


@pytest.fixture
def rewound(
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    tmp_path: Path,
    here: JobsHere,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int], Rewound]:
    """`rewound(seed)`: a job that is drawn."""

    def drawn(seed: int) -> Rewound:
        topics = {role: topic_factory(2, prefix=role) for role in ("left", "right", *ROLES)}
        return Rewound(kafka, topics, tmp_path, here, seed, monkeypatch)

    return drawn


@pytest.mark.parametrize("seed", SEEDS)
def test_each_left_record_has_its_rows_whatever_is_killed_rewound_and_undone(
    rewound: Callable[[int], Rewound], topic_factory: TopicFactory, seed: int
) -> None:
    """Then audit and explain tell the truth about the rewound job."""
    job, numbers = rewound(seed), random.Random(seed)

    def again() -> None:
        job.rewind(WrittenRows.AGAIN, killed=numbers.randrange(3))

    def keep() -> None:
        written = WrittenRows.AGAIN if job.policy is Policy.ALL else WrittenRows.KEEP
        job.rewind(written, killed=numbers.randrange(3))

    def forget() -> None:
        job.feed()
        job.run()
        job.forget()

    job.run()
    steps = [job.feed, job.run, forget, keep, keep, keep, again, job.undo]
    for step in numbers.choices(steps, k=STEPS):
        step()
    job.kill()
    keep()
    job.run()
    job.backfill(topic_factory(2, prefix="backfill"))
    job.run()

    check_audit(job)
    check_explained(job)


def test_right_records_that_retention_has_deleted_are_named(
    rewound: Callable[[int], Rewound], kafka: dict[str, str]
) -> None:
    """Nothing happens then; a later time, whose right records are there, is taken."""
    job = rewound(1)
    job.run()
    gone = START_MS + 1_300
    deleted = [
        TopicPartition(
            job.topics["right"], p, sum(put.partition == p and put.time_ms < gone for put in job.traffic.right)
        )
        for p in range(PARTITIONS)
    ]
    admin = AdminClient(dict(kafka))  # kept alive: its calls end with it
    for future in admin.delete_records(deleted).values():
        future.result(120)

    with pytest.raises(DataLoss, match=f"retention of right topic '{job.topics['right']}' does not reach back"):
        command.rewind(job.job(), START_MS, WrittenRows.AGAIN)
    assert job.checkpoint == Path(job.content["checkpoint"])
    job.rewind(WrittenRows.AGAIN, time_ms=START_MS + 2_500)
    job.run()


def test_a_standby_that_waits_goes_on_where_the_job_was_rewound_to(
    rewound: Callable[[int], Rewound], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as one process runs the job, the command is refused; a standby waits for the command, too."""
    job = rewound(2)
    assert job.policy is not Policy.ALL
    live = {**job.started(), "trigger": {"every": "50ms"}}

    def started(number: int) -> JobProcess:
        folder = tmp_path / f"process-{number}"
        folder.mkdir()
        return JobProcess(folder, live, (sys.executable, "-m", "deploy.cli", "run", "--standby"))

    def written(process: JobProcess) -> None:
        rows = sum(job.passes.values()) + len(job.due())
        process.until(lambda: len(lefts(job.kafka, job.topics["out"])) >= rows, "it has written its rows")

    active = started(1)
    written(active)
    with pytest.raises(CheckpointInUse):
        command.rewind(job.job(), START_MS + 1_000, WrittenRows.AGAIN)
    active.stop()
    job.has_run()

    with checkpoint_lock(job.content["checkpoint"]), monkeypatch.context() as patched:
        patched.setattr(command, "checkpoint_lock", lambda _: nullcontext())  # it is held from here on
        standby = started(2)
        standby.until(lambda: "standby: warm" in standby.logged(), "it is warm")
        job.rewind(WrittenRows.AGAIN, time_ms=START_MS + 1_000)
        assert standby.process.poll() is None
        assert not standby.lines
    written(standby)
    assert standby.stop() == 0
    job.has_run()
