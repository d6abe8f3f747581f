"""`make test` installs what the selected tests need, and no more."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.quick import ROOT


def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.needs", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("selection", "targets"),
    [
        (["tests/joins/window/test_match.py"], ["venv"]),
        (["tests/teacup/storage/api/test_server.py"], ["venv"]),
        (["tests/teacup/kafka/read/test_range_reader.py"], ["venv", "broker-jars", "jvm-archive"]),
        (["tests/teacup/storage/backends/test_backends.py"], ["venv", "redis"]),
        (["tests/deploy/watch", "-k", "promtool_accepts_every_metric"], ["venv", "prometheus"]),
        (["tests/datadelay/api/test_page.py"], ["venv", "browser"]),
    ],
)
def test_the_targets_are_those_of_the_selected_tests(selection: list[str], targets: list[str]) -> None:
    """By the fixtures that they take, and by what their modules import."""
    assert asked(*selection).stdout.split() == targets


def test_a_selection_that_pytest_refuses_is_refused() -> None:
    """With what pytest says."""
    refused = asked("tests/no_such_folder")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "tests/no_such_folder" in refused.stderr
