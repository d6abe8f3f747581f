"""The long crash matrix: many blows, drawn from a seed, and a table of what came of them.

make crash [RUNS=200] [SEED=7] [JOBS=2]      or      python -m tests.crash.matrix --runs 200 --seed 7 --jobs 2
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.progress import track

from deploy.broker import Broker
from kafkaio.failpoint import POINTS
from tests.crash.course import Course
from tests.crash.scenarios import KINDS, TARGETS, Scenario, drawn

BLOWS = 10  # to one job, before it is stopped and checked


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.matrix", description="Crash tests, drawn from a seed.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--jobs", type=int, default=1, help="run side by side, each with a broker of its own")
    asked = parser.parse_args()
    print(f"seed {asked.seed}: repeat this run with --seed {asked.seed} --runs {asked.runs}", flush=True)
    scenarios = list(drawn(asked.seed, asked.runs))
    # An executor is a process of its own on a cluster only; the other targets are quicker without one.
    local = [one for one in scenarios if one.target != "executor"]
    cluster = [one for one in scenarios if one.target == "executor"]
    courses = [
        (master, some[at : at + BLOWS])
        for master, some in (("local[2]", local), ("local-cluster[2,1,1024]", cluster))
        for at in range(0, len(some), BLOWS)
    ]
    held: Counter[Scenario] = Counter()
    broken: list[str] = []
    restarted: list[str] = []
    begun = time.monotonic()
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        running = {
            pool.submit(_course, asked.seed + number, master, some): (number, some)
            for number, (master, some) in enumerate(courses)
        }
        for ended in track(as_completed(running), description="jobs", total=len(running)):
            number, some = running[ended]
            fault = ended.exception()
            if fault is None:
                held.update(some)
                restarted += ended.result()
            else:
                broken.append(f"job {number}: {fault!r}")
    print(_table(held))
    print(f"{sum(held.values())} of {len(scenarios)} blows held in {time.monotonic() - begun:.0f} s, seed {asked.seed}")
    for blow in restarted:
        print(f"the job ended by itself, and was started again, after {blow}")
    for violation in broken:
        print(f"BROKEN  {violation}")
    return 1 if broken else 0


def _course(seed: int, master: str, scenarios: list[Scenario]) -> list[str]:
    """After which blows the job ended by itself, with its exit codes. Raises `Violation`."""
    with tempfile.TemporaryDirectory(prefix="teacup-crash-") as folder, Broker() as broker:
        course = Course(broker, Path(folder) / "job", seed, master)
        for scenario in scenarios:
            course.run(scenario)
        course.finish()
        return course.ended


def _table(held: Counter[Scenario]) -> str:
    """Markdown: blows that held, by target, kind and point."""
    lines = [f"| target | kind | {' | '.join(POINTS)} |", "|---" * (2 + len(POINTS)) + "|"]
    for target in TARGETS:
        for kind in KINDS:
            counts = (held[Scenario(target, kind, point)] for point in POINTS)
            lines.append(f"| {target} | {kind} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(_main())
