"""The long crash matrix: many faults, drawn from a seed, and a table of the results.

make crash [RUNS=200] [SEED=7] [JOBS=2] [KIND=feeder] [STANDBY=1]
make crash KIND=stops [RUNS=200] ...      signals in every phase of a start (`tests.crash.stops`)
python -m tests.crash.matrix --runs 200 --seed 7 --jobs 2
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.progress import track

from deploy.broker.broker import Broker
from teacup.kafka.delivery.failpoints import FAILPOINTS
from tests.crash.kinds import WORLDS
from tests.crash.rewound import RewoundRun
from tests.crash.rewound_job import REWOUND
from tests.crash.run import Run
from tests.crash.scenarios import JOBS, KINDS, STANDBY_TARGETS, Scenario, drawn, every, every_with_standby
from tests.crash.standbys import StandbyRun
from tests.crash.stopped import StoppedRun
from tests.crash.stops import KINDS as KINDS_OF_STOPS
from tests.crash.stops import PHASES, SIGNALS, Stop, every_stop, histories
from tests.support.leftovers import end_with_parent

FAULTS = 10  # of one job, before it is stopped and checked
STOPS, STOPS_OF_ONE = "stops", 6


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.matrix", description="Crash tests, drawn from a seed.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--jobs", type=int, default=1, help="run side by side, each with a broker of its own")
    parser.add_argument(
        "--kind", choices=(*JOBS, STOPS), help=f"of those drawn, only the faults of this job; {STOPS}: others"
    )
    parser.add_argument("--standby", action="store_true", help="the faults of jobs with a standby")
    asked = parser.parse_args()
    kind = f"{' --standby' if asked.standby else ''}{f' --kind {asked.kind}' if asked.kind else ''}"
    again = f"--seed {asked.seed} --runs {asked.runs}{kind}"
    print(f"seed {asked.seed}: repeat this run with {again}", flush=True)
    runs = _stops(asked) if asked.kind == STOPS else _faults(asked)
    drawn_in_all = sum(len(some) for *_, some in runs)
    held: Counter[Any] = Counter()
    broken: list[str] = []
    restarted: list[str] = []
    begun = time.monotonic()
    with ProcessPoolExecutor(asked.jobs, get_context("spawn"), initializer=end_with_parent) as pool:
        running = {
            pool.submit(_run, asked.seed + number, job, master, some): (number, job, some)
            for number, (job, master, some) in enumerate(runs)
        }
        for ended in track(as_completed(running), description="jobs", total=len(running)):
            number, job, some = running[ended]
            fault = ended.exception()
            if fault is None:
                held.update(some)
                restarted += ended.result()
            else:
                broken.append(f"job {number}: {fault!r}")
            outcome = "held" if fault is None else f"BROKEN: {fault}"
            print(f"job {number}, {job}: {len(some)} faults {outcome}; {sum(held.values())} so far", flush=True)
    print(_table_of_stops(held) if asked.kind == STOPS else _table(held))
    print(f"{sum(held.values())} of {drawn_in_all} faults held in {time.monotonic() - begun:.0f} s, seed {asked.seed}")
    for fault_before in restarted:
        print(f"the job ended by itself, and was started again, after {fault_before}")
    for violation in broken:
        print(f"BROKEN  {violation}")
    return 1 if broken else 0


Group = tuple[str, str, Sequence[Any]]
"""What is run on one job: its kind, the master of its Spark, and the faults."""


def _faults(asked: argparse.Namespace) -> list[Group]:
    among = every_with_standby() if asked.standby else every()
    scenarios = [scenario for scenario in drawn(asked.seed, asked.runs, among) if asked.kind in (None, scenario.job)]
    # Only on a cluster is an executor a process of its own; the other targets are quicker without one.
    groups: dict[tuple[str, bool, str], list[Scenario]] = {}
    for scenario in scenarios:
        groups.setdefault((scenario.job, scenario.target == "executor", scenario.place), []).append(scenario)
    slowest_first = sorted(groups.items(), key=lambda group: group[0][0] not in WORLDS)
    return [
        (job, "local-cluster[2,1,1024]" if on_cluster else "local[2]", some[at : at + FAULTS])
        for (job, on_cluster, _), some in slowest_first
        for at in range(0, len(some), FAULTS)
    ]


def _stops(asked: argparse.Namespace) -> list[Group]:
    stops = drawn(asked.seed, asked.runs, every_stop())
    return [(some[0].kind, "local[2]", some) for some in histories(stops, STOPS_OF_ONE)]


def _run(seed: int, job: str, master: str, scenarios: Sequence[Any]) -> list[str]:
    """After which faults the job ended by itself, with its exit codes. Raises `Violation`."""
    with tempfile.TemporaryDirectory(prefix="teacup-crash-") as folder, Broker() as broker:
        where, first = Path(folder) / "job", scenarios[0]
        run: Run | StoppedRun
        if isinstance(first, Stop):
            run = StoppedRun(broker, where, seed, job)
        elif first.place:
            run = StandbyRun(broker, where, seed, master, job, place=first.place)
        else:
            run = (RewoundRun if job in REWOUND else Run)(broker, where, seed, master, job)
        for scenario in scenarios:
            run.run(scenario)
        run.finish()
        return run.ended


def _table_of_stops(held: Counter[Stop]) -> str:
    """Markdown: stops that held, by job, signal and phase."""
    lines = [f"| job | signal | {' | '.join(PHASES)} |", "|---" * (2 + len(PHASES)) + "|"]
    for kind in KINDS_OF_STOPS:
        for number in SIGNALS:
            of = [held[Stop(kind, phase, number)] for phase in PHASES]
            lines.append(f"| {kind} | {number} | {' | '.join(map(str, of))} |")
    return "\n".join(lines)


def _table(held: Counter[Scenario]) -> str:
    """Markdown: faults that held, by job, target, kind and point."""
    lines = [f"| job | target | kind | {' | '.join(FAILPOINTS)} |", "|---" * (3 + len(FAILPOINTS)) + "|"]
    for job, place in dict.fromkeys((one.job, one.place) for one in (*every(), *every_with_standby()) if held[one]):
        points, targets = JOBS[job][1], STANDBY_TARGETS if place else JOBS[job][0]
        for target in targets:
            for kind in KINDS:
                of = [held[Scenario(target, kind, one, job, place)] if one in points else "" for one in FAILPOINTS]
                where = f", {place}" if place else ""
                lines.append(f"| {job}{where} | {target} | {kind} | {' | '.join(map(str, of))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(_main())
