"""A standby takes over in the middle of a batch: no row is lost, or written twice, whatever is killed or comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.broker.broker import Broker
from tests.crash.scenarios import SHORT_WITH_STANDBY, drawn, every_with_standby
from tests.crash.standbys import StandbyRun


@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("place", SHORT_WITH_STANDBY)
def test_a_standby_takes_over_in_the_middle_of_a_batch(tmp_path: Path, place: str) -> None:
    """The rows equal the oracle's, in the order of left; the window comes from its backup in the checkpoint."""
    with Broker() as broker:
        run = StandbyRun(broker, tmp_path, seed=1, place=place)
        for scenario in SHORT_WITH_STANDBY[place]:
            run.run(scenario)
        run.finish()


def test_every_fault_with_a_standby_is_drawn_once_before_any_comes_twice() -> None:
    every = every_with_standby()

    assert set(drawn(5, len(every), every)) == set(every)
