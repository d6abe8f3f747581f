"""The tests that need no broker, Spark, browser, Redis or process, and no minutes: `make quick`.

Found by what test modules import, through the modules of tests that they share: nothing below starts anything. Each run
searches with other examples, which a seed gives: `make quick SEED=7` repeats a run. (`make test` and `.ci/run` take the
same examples each time: what is red there is about the change.)

    python -m tests.quick [--seed 7] [arguments of pytest]
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.profiles import FRESH

ROOT = Path(__file__).parents[1]
STARTS = {
    *("subprocess", "multiprocessing", "socket", "pyspark", "py4j", "selenium", "uvicorn", "redis", "aerospike"),
    *("requests", "urllib3", "psutil"),
    *("confluent_kafka", "dev", "teacup.kafka.native.build"),
    *("tests.support.api", "tests.support.one_broker", "tests.support.zookeeper_server"),
}
"""What a test module imports that starts something, or talks to something that was started."""
AUDITS = {"tests.support.audited"}
"""Plays histories and audits what comes out, which takes a minute."""
GIVEN = {"kafka", "spark", "topic_factory", "admin", "transactions", "guarded", "window_job", "zookeeper", "world"}
"""Fixtures that do."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Yields the modules that are imported anywhere in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


@dataclass(frozen=True)
class Source:
    """What a module imports, and the names of its functions' arguments."""

    imports: frozenset[str]
    arguments: frozenset[str]

    @classmethod
    @cache
    def of(cls, module: Path) -> Source:
        tree = ast.parse(module.read_text(encoding="utf-8"))
        every = (node for node in ast.walk(tree) if isinstance(node, ast.arguments))
        return cls(frozenset(imported(tree)), frozenset(one.arg for node in every for one in node.args))

    def has(self, modules: Collection[str]) -> bool:
        """Returns whether it imports one of these, or something in it."""
        return any(name == one or name.startswith(f"{one}.") for name in self.imports for one in modules)


def reached(module: Path) -> list[Source]:
    """Returns a module of the tests, and those of the tests that it imports, through others, too."""
    found, waiting = {module: Source.of(module)}, [module]
    while waiting:
        for name in found[waiting.pop()].imports:
            other = ROOT / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and other not in found and other.exists():
                found[other] = Source.of(other)
                waiting.append(other)
    return list(found.values())


def starts(module: Path) -> bool:
    """Returns whether a module of the tests starts something, or a module does that it shares with others."""
    return any(source.arguments & GIVEN or source.has(STARTS) for source in reached(module))


def quick() -> list[Path]:
    """Returns the test modules that start nothing, by name; without those of whole audits."""
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    return [module for module in modules if not starts(module) and not Source.of(module).has(AUDITS)]


def main() -> int:
    """Runs them; returns pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.quick", description="The tests that start nothing.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked, more = parser.parse_known_args()
    print(f"examples of seed {asked.seed}: `make quick SEED={asked.seed}` repeats them", flush=True)
    command = [sys.executable, "-m", "pytest", "-m", "not slow and not canary", f"--hypothesis-seed={asked.seed}"]
    return subprocess.run(
        [*command, *more, *map(str, quick())],
        cwd=ROOT,
        env={**os.environ, "TEACUP_PROFILE": FRESH},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
