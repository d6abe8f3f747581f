"""What the selected tests need that may have to be installed, as targets of the Makefile: `make test` makes these only.

    python -m tests.needs tests/teacup/storage    venv redis

pytest says which tests it would run. What they need is found by the fixtures that they take, others through them, and
by what their modules import, through modules of the tests that they share (`tests.quick`).
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable

import pytest

from tests.quick import reached

NEEDS = {
    "broker-jars": {"deploy.broker.broker", "dev"},
    "redis": {"tests.support.redis_server"},
    "browser": {"tests.support.chromium"},
    "prometheus": {"tests.support.prometheus_server"},
}
"""Target -> the modules that start what it installs."""
FIXTURES = {"kafka": "broker-jars", "spark": "jvm-archive", "redis": "redis", "own_redis": "redis"}
"""Of a `conftest.py`, which tests do not import."""


class Selected:
    """A plugin that keeps the selected tests."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def needs(items: Iterable[pytest.Item]) -> set[str]:
    """Returns the targets; a job that reads from the broker starts a JVM."""
    items = list(items)
    taken = {name for item in items for name in item.fixturenames}  # type: ignore[attr-defined]
    found = {target for name, target in FIXTURES.items() if name in taken}
    for source in {source for module in {item.path for item in items} for source in reached(module)}:
        found |= {target for target, starting in NEEDS.items() if source.has(starting)}
    return found | ({"jvm-archive"} if "broker-jars" in found else set())


def main(arguments: list[str]) -> int:
    """Prints them; returns 1, and prints what pytest says, if it cannot select."""
    selected, said = Selected(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main([*arguments, "--collect-only", "-q"], plugins=[selected])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(said.getvalue(), file=sys.stderr)
        return 1
    print("venv", *sorted(needs(selected.items)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
