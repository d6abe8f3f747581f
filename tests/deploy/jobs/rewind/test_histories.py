"""Random histories of a rewound join on a real broker: each left record has the rows that the commands promise."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.jobs.rewind.rewind import WrittenRows
from joins.spec import Policy
from tests.conftest import TopicFactory
from tests.deploy.jobs.conftest import here
from tests.deploy.jobs.rewind.histories import ROLES, Rewound
from tests.support.jobhere import JobsHere

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

    job.check_audit()
    job.check_explained()
