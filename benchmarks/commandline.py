"""What the commands of the benchmarks share: the machine's line, the choice of systems, a broker, and a promise."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.broker.broker import Broker


def machine() -> str:
    """Returns a line about the machine, to be printed above the figures."""
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, load before the start {load:.1f}"


def chosen(parser: argparse.ArgumentParser, only: str, known: Sequence[str]) -> list[str]:
    """Returns the names that `--only` lists; ends the command if one is unknown."""
    names = only.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not known; take some of {', '.join(known)}")
    return names


@contextmanager
def broker_and_folder() -> Iterator[tuple[Broker, Path]]:
    """Starts a broker, and yields it with a temporary folder for whatever else the benchmark writes."""
    with tempfile.TemporaryDirectory(prefix="teacup-bench-") as folder, Broker() as broker:
        yield broker, Path(folder)


def promise_line(kept: bool, line: str) -> str:
    """Returns the line of a promise, which says first whether this run kept it."""
    return f"{'kept  ' if kept else 'MISSED'}  {line}"
