"""What a run of the tests prints, with and without several worker processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import os, pytest

def test_passes(): pass

@pytest.mark.parametrize("number", [1, 2])
def test_fails(number): assert number == 1

@pytest.mark.skip(reason="no server")
def test_skipped(): pass

def test_passes_the_second_time():
    if not os.path.exists("once"):
        open("once", "w").close()
        raise AssertionError("the first time")
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_each_file_has_a_line_and_a_test_that_passed_the_second_time_is_named(tmp_path: Path, workers: list[str]):
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text("def test_passes(): pass\n")

    command = [sys.executable, "-m", "pytest", "-p", "tests.support.reporting", "--reruns", "1", *workers]
    printed = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    ).stdout

    assert re.search(r"^test_one.py +1 failed, 3 passed, 1 skipped +[\d.]+ s$", printed, re.MULTILINE), printed
    assert re.search(r"^test_other.py +1 passed ", printed, re.MULTILINE)
    assert re.search(r"slowest 10 =+\n +[\d.]+ s  test_", printed)
    assert re.search(r"passed only the second time =+\ntest_one.py::test_passes_the_second_time\nE ", printed)
    assert "E           AssertionError: the first time" in printed
