"""Many generated histories, cut and restarted at random: `make soak`. Records have wrong times or come much too late.

    python -m tests.joins.window.soak --histories 2000 --seed 7

Each history is played with restarts that lose files at random, drained, and compared with the oracle. The first one in
which another record gets a wrong row ends the run and is printed.
"""

from __future__ import annotations

import argparse
import random
import time

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from joins.testing.simulation import Simulation
from joins.testing.strategies import cuts
from tests.support.joinhistories import check_rows_of_others, joins_with_history


def soak(histories: int, number: int) -> None:
    done = right = wrong = 0
    began = time.monotonic()

    @seed(number)
    @settings(
        max_examples=histories,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(joins_with_history(wrong_times=True, reordered=True), cuts(), st.randoms(use_true_random=False))
    def holds(join, steps, chance):
        nonlocal done, right, wrong
        spec, history = join
        simulation = Simulation(history, spec)
        for step in steps:
            simulation.play([step])
            if chance.random() < 0.5:
                simulation.restart(lose_files=chance.random() < 0.5)
        check_rows_of_others(history, simulation, simulation.drain())
        done += 1
        for topic in (history.left, history.right):
            records = list(topic.records())
            wrong += sum(event.wrong_time for event in records)
            right += sum(not event.wrong_time for event in records)

    try:
        holds()
    except BaseException:
        print(f"seed {number}, after {done} histories")
        raise
    print(
        f"{done} histories (seed {number}) with {right} records and {wrong} with wrong ones: no row of "
        f"the former is wrong, lost or a duplicate; {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args()
    soak(asked.histories, random.randrange(1 << 32) if asked.seed is None else asked.seed)
