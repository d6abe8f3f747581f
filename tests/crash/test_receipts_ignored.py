"""The canary of the crash runs takes its protection away where rows are delivered, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from teacup.spark import worker_daemon
from tests.crash.run import receipts_ignored

LOOK = "from teacup.kafka.delivery.delivery import written_so_far; print(written_so_far(*'???'))"


def test_receipts_are_ignored_in_the_daemon_of_sparks_workers(tmp_path: Path) -> None:
    """Which is known by its module's name; its workers are forked from it."""
    ignored = {**os.environ, **receipts_ignored(tmp_path / "without")}

    daemon = look(ignored, worker_daemon.__name__)
    other = look(ignored, "another.module")

    assert "WrittenSoFar" in daemon.stdout, daemon.stderr
    assert "AttributeError" in other.stderr


def look(environment: dict[str, str], module: str) -> subprocess.CompletedProcess[str]:
    """Asks a process with this module in its command what is in the output, by what is no receipt."""
    command = [sys.executable, "-c", LOOK, module]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
