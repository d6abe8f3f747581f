"""A standby takes over in the middle of a batch: no row is lost, or written twice, whatever the old one still does."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.dev.broker.broker import Broker
from tests.crash.standbys import StandbyRun


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "points"),
    [
        (False, ["producing", "before_commit", "after_commit"]),
        (True, ["producing", "before_commit", "after_commit"]),
    ],
)
def test_a_standby_takes_over_in_the_middle_of_a_batch(tmp_path: Path, lost: bool, points: list[str]) -> None:
    """From a process that was killed, and from one that is silent and comes back, which ends by itself with its code.

    The rows equal the oracle's, in the order of left; the window comes from its backup in the checkpoint.
    """
    with Broker() as broker:
        run = StandbyRun(broker, tmp_path, seed=1)
        for point in points:
            run.struck(point, lost=lost)
        run.finish()
        assert run.ended == []
