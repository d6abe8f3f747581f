"""What a test run prints: one line per file, the slowest ten tests, and what passed only the second time, with why.

    tests/joins/window/test_match.py                          41 passed                    1.2 s

A file's line comes once all of its tests have ended, in whichever worker processes they ran.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Any

import pytest

SLOWEST = 10
REASON_LINES, REASON_WIDTH = 12, 300
_VERBOSE = 1
_Status = tuple[str, str, Any]


def pytest_configure(config: pytest.Config) -> None:
    """Only where the results of all tests come together: not in the worker processes of xdist."""
    if not hasattr(config, "workerinput") and config.get_verbosity() < _VERBOSE:
        config.pluginmanager.register(Reporting(config), "teacup-reporting")


class Reporting:
    """Counts outcomes and seconds by file and by test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._waiting: Counter[str] = Counter()
        self._outcomes: dict[str, str] = {}
        self._of_files: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._seconds: Counter[str] = Counter()
        self._of_tests: Counter[str] = Counter()
        self._reran: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without xdist, which does not print the name of a file before its tests."""
        self._terminal.showfspath = False
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """With xdist: each worker process collects the same tests."""
        self._expect(ids)

    def _expect(self, ids: list[str]) -> None:
        self._waiting = Counter(_file(test) for test in ids)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, _Status, _Status]:
        """No letters: lines take their place."""
        category, _, word = yield
        return category, "", word

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown of a test are reported one by one, and again where it is run once more."""
        test = report.nodeid
        self._seconds[_file(test)] += report.duration
        self._of_tests[test] += report.duration
        if report.outcome == "rerun":
            self._reran[test] = _reason(report)
            self._outcomes.pop(test, None)
        elif report.when == "call" or report.outcome != "passed":
            self._outcomes[test] = report.outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """The test has ended: its file's line, if it is the last one; if it failed, its own at once."""
        if nodeid not in self._outcomes:
            return  # it is run once more
        file = _file(nodeid)
        self._of_files[file][self._outcomes[nodeid]] += 1
        if self._outcomes[nodeid] == "failed":
            self._terminal.write_line(f"FAILED {nodeid}")
        self._waiting[file] -= 1
        if not self._waiting[file]:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._of_files[file].items()))
            self._terminal.write_line(f"{file:<62} {counts:<24} {self._seconds[file]:6.1f} s")

    def pytest_terminal_summary(self) -> None:
        """The slowest tests, with their setup and teardown, and what passed only when it was run once more."""
        self._terminal.section(f"slowest {SLOWEST}")
        for test, seconds in self._of_tests.most_common(SLOWEST):
            self._terminal.write_line(f"{seconds:6.1f} s  {test}")
        late = sorted(test for test in self._reran if self._outcomes.get(test) == "passed")
        if self._reran:
            self._terminal.section("passed only the second time")
            self._terminal.write_line("\n".join(f"{test}{self._reran[test]}" for test in late) or "none")

    @property
    def _terminal(self) -> pytest.TerminalReporter:
        found: pytest.TerminalReporter = self._config.pluginmanager.get_plugin("terminalreporter")
        return found


def _reason(report: pytest.TestReport) -> str:
    """Returns the lines of a failure that say why, each cut; nobody sees the rest of a test that passes later."""
    said = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return "".join(f"\n{line[:REASON_WIDTH]}" for line in said[:REASON_LINES])


def _file(test: str) -> str:
    return test.partition("::")[0]
