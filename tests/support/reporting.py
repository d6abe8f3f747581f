"""What a test run prints: one line per file, the slowest ten tests, and what passed only the second time.

    tests/joins/window/test_match.py                          41 passed                    1.2 s

A file's line comes once all of its tests have ended, in whichever worker processes they ran.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

SLOWEST = 10
_VERBOSE = 1


def pytest_configure(config: pytest.Config) -> None:
    """Only where the results of all tests come together: not in the worker processes of xdist."""
    if not hasattr(config, "workerinput") and config.get_verbosity() < _VERBOSE:
        config.pluginmanager.register(Reporting(config), "teacup-reporting")


class Reporting:
    """Counts outcomes and seconds by file and by test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._expected: Counter[str] = Counter()
        self._ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._seconds: Counter[str] = Counter()
        self._of_tests: Counter[str] = Counter()
        self._reran: dict[str, bool] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without xdist."""
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """With xdist: each worker process collects the same tests."""
        self._expect(ids)

    def _expect(self, ids: list[str]) -> None:
        self._expected = Counter(_file(test) for test in ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No dots: lines take their place."""
        if report.outcome == "rerun":
            return "rerun", "", "RERUN"
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            return "passed", "", "PASSED"
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown of a test are reported one by one; the last two only if the first passed."""
        file = _file(report.nodeid)
        self._seconds[file] += report.duration
        self._of_tests[report.nodeid] += report.duration
        if report.outcome == "rerun":
            self._reran[report.nodeid] = False
        elif report.failed:
            self._ended[file]["failed"] += 1
        elif report.when == "setup" and report.skipped:
            self._ended[file]["skipped"] += 1
        elif report.when == "call":
            self._ended[file][report.outcome] += 1
            if report.nodeid in self._reran:
                self._reran[report.nodeid] = report.passed
        if report.when == "teardown":
            self._expected[file] -= 1
            if not self._expected[file]:
                self._print(file)

    def _print(self, file: str) -> None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._ended[file].items()))
        self._terminal.write_line(f"{file:<62} {counts:<24} {self._seconds[file]:6.1f} s")

    def pytest_terminal_summary(self) -> None:
        """The slowest tests, with their setup and teardown."""
        self._terminal.section(f"slowest {SLOWEST}")
        for test, seconds in self._of_tests.most_common(SLOWEST):
            self._terminal.write_line(f"{seconds:6.1f} s  {test}")
        if self._reran:
            self._terminal.section("passed only the second time")
            for test, passed in sorted(self._reran.items()):
                self._terminal.write_line(f"{test}{'' if passed else '  (failed again)'}")

    @property
    def _terminal(self) -> pytest.TerminalReporter:
        found: pytest.TerminalReporter = self._config.pluginmanager.get_plugin("terminalreporter")
        return found


def _file(test: str) -> str:
    return test.partition("::")[0]
