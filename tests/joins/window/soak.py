"""Many generated histories of each type and policy, cut and restarted at random: `make soak`.

    python -m tests.joins.window.soak --histories 20000 --seed 7

Histories of an in-memory join have wrong times, or come much too late; each is played on the direct or the shuffled
path, with restarts that lose files at random. Those of a lookup join have a feeder and a collector that lag, pause and
go back. Each is drained, and compared with the oracle. The first one in which another record gets a wrong row ends the
run and is printed. Without `--histories` there are 20,000; types, policies and joins share them equally. As many more
are of lookup joins with a table that changes: versions, ties, deletes; `--only` plays one of both.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from joins.spec import JoinSpec, JoinType, Policy
from joins.testing.history import History
from joins.testing.simulation import Simulation
from joins.testing.strategies import cuts
from teacup.base.now import Every
from tests.support import lookuphistories
from tests.support.joinhistories import check_rows_of_others, joins_with_history
from tests.support.making import changed
from tests.support.simulatedtable import check_rows, tables_with_history

KINDS = ("streams", "tables")


class Soak:
    """What was played so far."""

    def __init__(self) -> None:
        self.played: Counter[str] = Counter()
        self.records: Counter[bool] = Counter()
        self._tells = Every(60.0)

    def window(self, kind: JoinType, policy: Policy) -> Callable[..., None]:
        """Returns the property of an in-memory join of a type and a policy."""

        @given(joins_with_history(wrong_times=True, reordered=True), cuts(), st.randoms(use_true_random=False))
        def holds(join: tuple[JoinSpec, History], steps: Any, chance: random.Random) -> None:
            spec, history = changed(join[0], type=kind, policy=policy), join[1]
            simulation = Simulation(history, spec)
            for step in steps:
                simulation.play([step])
                if chance.random() < 0.5:
                    simulation.restart(lose_files=chance.random() < 0.5)
            check_rows_of_others(history, simulation, simulation.drain())
            self.count(f"window join, {spec.path or 'direct'}", history)

        return holds

    def lookup(self, kind: JoinType, policy: Policy) -> Callable[..., None]:
        """Returns the property of a lookup join of a type and a policy."""

        @given(lookuphistories.joins_with_history(), lookuphistories.STEPS)
        def holds(join: tuple[JoinSpec, History], steps: Any) -> None:
            lookuphistories.check_output((changed(join[0], type=kind, policy=policy), join[1]), steps)
            self.count("lookup join", join[1])

        return holds

    def table(self, kind: JoinType) -> Callable[..., None]:
        """Returns the property of a lookup join of a type with a table that changes."""

        @given(tables_with_history(), lookuphistories.STEPS)
        def holds(join: tuple[JoinSpec, History], steps: Any) -> None:
            check_rows((changed(join[0], type=kind), join[1]), steps)
            self.count("table that changes", join[1])

        return holds

    def count(self, join: str, history: History) -> None:
        self.played[join] += 1
        for topic in (history.left, history.right):
            self.records.update(event.wrong_time for event in topic.records())
        if self._tells.due():
            print(f"{self.played.total()} histories so far: none is wrong", flush=True)


def soak(histories: int, number: int, only: Sequence[str]) -> None:
    begun, found = time.monotonic(), Soak()
    rows = [(k, p) for k in JoinType for p in Policy if not (k.left_alone and p is Policy.ALL)]
    stored = [(k, p) for k, p in rows if k is not JoinType.FULL]
    streams = [(k, p, found.window(k, p)) for k, p in [*rows, *rows]] + [(k, p, found.lookup(k, p)) for k, p in stored]
    tables = [(k, Policy.LAST, found.table(k)) for k in dict.fromkeys(k for k, _ in stored)]
    played = {"streams": streams, "tables": tables}
    cells = [(cell, -(-histories // len(played[name]))) for name in only for cell in played[name]]
    for at, ((kind, policy, holds), most) in enumerate(cells):
        each = settings(
            max_examples=most,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        try:
            seed(number + at)(each(holds))()
        except BaseException:
            print(f"seed {number}, {kind}, {policy}, {dict(found.played)} histories before")
            raise
    print(
        f"{found.played.total()} histories (seed {number}: {dict(found.played)}; {len(rows)} types and policies) with "
        f"{found.records[False]} records and {found.records[True]} with wrong ones: no row of the former is wrong, "
        f"lost or a duplicate; {time.monotonic() - begun:.0f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", choices=KINDS, help="of two topics that are streams, or whose right is a table")
    asked = parser.parse_args()
    number = random.randrange(1 << 32) if asked.seed is None else asked.seed
    soak(asked.histories, number, KINDS if asked.only is None else [asked.only])
