"""The short crash matrix, and its canaries: with a protection off, the same checks must fail."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from deploy.broker.broker import Broker
from tests.crash import stops
from tests.crash.rewound import RewoundRun
from tests.crash.rewound_job import REWOUND
from tests.crash.run import Run, Violation, kept_ignored, receipts_ignored
from tests.crash.scenarios import KILLS, SHORT, SHORT_OF_OTHERS, SHORT_ON_A_CLUSTER, Scenario, drawn, every
from tests.crash.stopped import StoppedRun

AFTER_COMMIT = Scenario("worker", "kill", "after_commit")

pytestmark = pytest.mark.timeout(3_000)  # two minutes alone on two cores; a run that hangs says so itself


@pytest.fixture(scope="module")
def own_broker():
    """One that may be killed."""
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize("scenarios", [KILLS, pytest.param(SHORT, marks=pytest.mark.slow)], ids=["kills", "short"])
def test_every_left_record_is_written_once_whatever_is_killed(
    own_broker: Broker, tmp_path: Path, scenarios: tuple[Scenario, ...]
) -> None:
    """Faults of one job, one after the other."""
    run = Run(own_broker, tmp_path, seed=1)
    for scenario in scenarios:
        run.run(scenario)
    run.finish()


@pytest.mark.slow
def test_an_executor_may_be_killed(own_broker: Broker, tmp_path: Path) -> None:
    """In Spark's local-cluster mode, where it is a JVM of its own."""
    run = Run(own_broker, tmp_path, seed=2, master="local-cluster[2,1,1024]")
    for scenario in SHORT_ON_A_CLUSTER:
        run.run(scenario)
    run.finish()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHORT_OF_OTHERS)
def test_the_other_jobs_lose_and_duplicate_nothing(own_broker: Broker, tmp_path: Path, kind: str) -> None:
    """The lookup join and its feeder beside store, Data Delay API and collector; the deduplication of a topic; joins
    that are rewound."""
    run = (RewoundRun if kind in REWOUND else Run)(own_broker, tmp_path, seed=4, kind=kind)
    for scenario in SHORT_OF_OTHERS[kind]:
        run.run(scenario)
    run.finish()


@pytest.mark.parametrize(
    "stop", [stops.ENDED_ITS_CHECKPOINT, pytest.param(stops.LEFT_A_PROCESS, marks=pytest.mark.slow)], ids=str
)
def test_a_job_is_stopped_in_any_phase_and_goes_on(own_broker: Broker, tmp_path: Path, stop: stops.Stop) -> None:
    """What once ended the checkpoint, and what once left a process behind."""
    run = StoppedRun(own_broker, tmp_path, seed=6, kind=stop.kind)
    run.run(stop)
    run.finish()


def test_every_stop_is_drawn_once_before_any_comes_twice() -> None:
    """By kind of job, as they are carried out."""
    every_stop = stops.every_stop()

    found = stops.histories(drawn(5, len(every_stop), every_stop), 6)

    assert sorted(map(str, chain.from_iterable(found))) == sorted(map(str, every_stop))
    assert all(len(history) <= 6 and len({stop.kind for stop in history}) == 1 for history in found)


DOUBLED = r"[1-9]\d* rows too many|too many \[\(|twice \['"
"""In the output, in a side topic, or among unjoined right records."""


@pytest.mark.canary
@pytest.mark.parametrize("protection", ["transactions", "receipts"])
def test_without_its_protection_the_same_fault_makes_duplicates(
    own_broker: Broker, tmp_path: Path, protection: str
) -> None:
    """Canaries: at-least-once delivery, and receipts that nobody reads."""
    changes = {"output": {"delivery": "at-least-once"}} if protection == "transactions" else {}
    environment = receipts_ignored(tmp_path / "off") if protection == "receipts" else {}
    run = Run(own_broker, tmp_path, seed=3, changes=changes, environment=environment)

    def strike_and_check() -> None:
        run.run(AFTER_COMMIT)
        run.finish()

    with pytest.raises(Violation, match=DOUBLED):
        strike_and_check()


@pytest.mark.slow
@pytest.mark.canary
def test_rows_that_a_rewind_was_to_keep_and_that_do_not_stay_are_found(own_broker: Broker, tmp_path: Path) -> None:
    """Canary: they are written again."""
    environment = kept_ignored(tmp_path / "off")
    run = RewoundRun(own_broker, tmp_path, seed=7, kind="rewound-join", environment=environment)  # it begins with one

    def strike_and_check() -> None:
        run.run(AFTER_COMMIT)
        run.finish()

    with pytest.raises(Violation, match=DOUBLED):
        strike_and_check()


def test_a_seed_gives_the_same_scenarios_again() -> None:
    """So that a run can be repeated; every fault comes once before any comes twice."""
    first, again, other = (list(drawn(seed, 2 * len(every()), every())) for seed in (5, 5, 6))

    assert first == again
    assert first != other
    assert set(first[: len(every())]) == set(every())
