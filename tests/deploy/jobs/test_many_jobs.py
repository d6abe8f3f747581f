"""Many jobs in one process: what follows from an end, a signal, a changed file."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dedup.identity import Identity
from deploy.jobfile.job import DedupJob
from deploy.jobfile.shared_process import Files, Running, WrongFile, jobs_of
from deploy.jobs import job_share, many_jobs
from deploy.jobs.job_share import JobShare, SharedSession
from deploy.jobs.many_jobs import ManyJobs
from deploy.jobs.stopping import SAME_REQUEST_S, Stop, StopRequest
from teacup.base.errors import ExitCode, SettingsInvalid
from teacup.base.logs import job_here
from tests.support.waiting import wait_until


def job(name: str, **values: Any) -> DedupJob:
    common = {"kind": "dedup", "checkpoint": f"/nowhere/{name}", "source": "s", "output": "o", "kafka": {}}
    return DedupJob(**{**common, "name": name, "identity": Identity(), **values})


class NoSpark:
    """In place of the session."""

    def __init__(self) -> None:
        self.gone, self.given_up, self.poll_slowdown = False, False, 1.0
        self.properties = job("a").spark


class Shown:
    """What a board would show: jobs that are gone, and why others were not begun."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.failed: dict[str, tuple[ExitCode, str]] = {}

    def forget(self, name: str) -> None:
        self.gone.append(name)
        self.failed.pop(name, None)

    def show(self, name: str) -> Any:
        return SimpleNamespace(restarts=lambda _: None, cannot_start=lambda *why: self.failed.update({name: why}))


WRONG = "left: unknown key"


class Process:
    """A process whose jobs end when a test says so."""

    def __init__(self, *names: str, wrong: str = "") -> None:
        self.files: dict[Path, Any] = {Path(f"{name}.yaml"): job(name) for name in names}
        if wrong:
            self.files[Path(f"{wrong}.yaml")] = WrongFile(wrong, (WRONG,))
        self.files = dict(sorted(self.files.items()))
        self.spark, self.started, self.named = NoSpark(), list[DedupJob](), list[str]()
        self.now_s = 0.0
        self.stop = Stop(lambda: self.now_s)
        self.ends: dict[str, ExitCode] = {}
        self.deaf: set[str] = set()
        self.shown = Shown()
        self.running = Running()
        self.problem: SettingsInvalid | None = None
        self.code: ExitCode | None = None
        self.many_jobs = ManyJobs(
            dict(self.files),
            self._read,
            self._carry_out,
            cast("SharedSession", self.spark),
            self.stop,
            self.shown,
        )

    def _read(self, running: Running) -> Files:
        self.running = running
        if self.problem is not None:
            raise self.problem
        return dict(self.files)

    def _carry_out(self, one: Any, request: StopRequest, share: JobShare) -> ExitCode:
        self.started.append(one)
        self.named.append(job_here())
        share.ready()
        while not (request.asked and one.name not in self.deaf):
            if (code := self.ends.pop(one.name, None)) is not None:
                return code
            threading.Event().wait(0.005)
        return ExitCode.DONE

    def starts(self, name: str) -> int:
        return sum(one.name == name for one in self.started)

    def __enter__(self) -> Process:
        self.stop.__enter__()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.until(lambda: len(self.started) >= len(jobs_of(self.files)))
        return self

    def _run(self) -> None:
        self.code = self.many_jobs.run()

    def __exit__(self, *_: object) -> None:
        self.stop.ask()
        self.deaf.clear()
        self.thread.join(30)
        self.stop.__exit__(None, None, None)

    def until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, lambda: f"started {[one.name for one in self.started]}, code {self.code}", 60)

    def ended(self) -> ExitCode | None:
        self.until(lambda: not self.thread.is_alive())
        return self.code

    def reload(self) -> None:
        self.many_jobs._hung_up()
        self.until(lambda: not self.many_jobs._reload)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_jobs, "TURN_S", 0.01)
    for module in (job_share, many_jobs):
        monkeypatch.setattr(module, "WAITS_S", (0.02, 0.08))


@pytest.mark.parametrize("code", [ExitCode.FAILED, ExitCode.UNREACHABLE])
def test_a_job_that_another_try_may_help_is_started_again_and_the_others_go_on(code: ExitCode) -> None:
    """Each runs under its own name."""
    with Process("a", "b") as process:
        for again in (2, 3):
            process.ends["a"] = code
            process.until(lambda again=again: process.starts("a") == again)  # type: ignore[misc]

        assert process.starts("b") == 1
        assert sorted({*process.named}) == ["a", "b"]
    assert process.code is ExitCode.DONE


def test_a_job_that_somebody_must_correct_stays_down_and_gives_the_exit_code() -> None:
    """Of several the first one's, in the order of the files."""
    with Process("a", "b", "c") as process:
        process.ends |= {"c": ExitCode.DATA_LOSS, "b": ExitCode.OUTPUT_TAKEN}
        process.until(lambda: not process.ends)
        process.stop.ask()

        assert process.ended() is ExitCode.OUTPUT_TAKEN
    assert len(process.started) == 3


def test_it_ends_by_itself_once_all_have() -> None:
    """Jobs with `trigger: available_now`."""
    with Process("a", "b") as process:
        process.ends |= {"a": ExitCode.DONE, "b": ExitCode.DONE}

        assert process.ended() is ExitCode.DONE


def test_one_that_was_stopped_before_it_was_done_is_not_tried_again_and_a_failure_outranks_it() -> None:
    """A scheduler goes by the exit code of the process."""
    for other, code in ((ExitCode.DONE, ExitCode.STOPPED), (ExitCode.OUTPUT_TAKEN, ExitCode.OUTPUT_TAKEN)):
        with Process("a", "b") as process:
            process.ends |= {"a": ExitCode.STOPPED, "b": other}

            assert process.ended() is code
        assert len(process.started) == 2


def test_if_the_jvm_has_ended_nothing_is_started_again() -> None:
    """The process ends, and its supervisor starts it again."""
    with Process("a", "b") as process:
        process.spark.gone = True
        process.ends |= {"a": ExitCode.FAILED, "b": ExitCode.FAILED}

        assert process.ended() is ExitCode.FAILED
    assert len(process.started) == 2


def test_a_hangup_starts_what_is_new_stops_what_is_gone_and_restarts_what_has_changed() -> None:
    """What has not changed goes on; what is down is started."""
    with Process("same", "changed", "gone", "down") as process:
        process.ends["down"] = ExitCode.DATA_LOSS
        process.until(lambda: not process.ends)
        process.until(lambda: not process.many_jobs._runs[Path("down.yaml")].runs)
        del process.files[Path("gone.yaml")]
        process.files[Path("changed.yaml")] = replace(process.files[Path("changed.yaml")], max_records=7)
        process.files[Path("new.yaml")] = job("new")
        process.reload()
        process.until(lambda: process.starts("changed") == process.starts("down") == 2)
        process.until(lambda: process.shown.gone == ["gone"])

        assert process.started[-1].name in ("changed", "down", "new")
        assert {name: process.starts(name) for name in ("same", "gone", "new")} == {"same": 1, "gone": 1, "new": 1}
        assert [one.max_records for one in process.started if one.name == "changed"][1] == 7
    assert process.code is ExitCode.DONE


def test_a_file_that_is_as_it_was_before_its_job_has_stopped_counts_as_it_is_now() -> None:
    """Changed or removed, and put back while the batch in progress is finished: the job goes on as before."""
    with Process("a", "gone") as process:
        process.deaf |= {"a", "gone"}
        before = dict(process.files)
        process.files = {Path("a.yaml"): replace(before[Path("a.yaml")], max_records=7)}
        process.reload()
        process.files = before
        process.reload()
        process.deaf.clear()
        process.until(lambda: process.starts("a") == process.starts("gone") == 2)

        assert [one.max_records for one in process.started if one.name == "a"][1] != 7
        assert not process.shown.gone


def test_a_job_whose_file_is_renamed_waits_until_it_has_stopped() -> None:
    """Else it finds its own lock, and stays down. So, too, jobs that change places; metrics of the name stay."""
    with Process("a", "b", "old") as process:
        process.deaf |= {"b", "old"}
        a, b = process.files[Path("a.yaml")], process.files[Path("b.yaml")]
        process.files = {Path("a.yaml"): b, Path("b.yaml"): a, Path("new.yaml"): process.files[Path("old.yaml")]}
        process.reload()
        process.until(lambda: not process.many_jobs._runs[Path("a.yaml")].runs)
        assert {name: process.starts(name) for name in ("a", "b", "old")} == {"a": 1, "b": 1, "old": 1}
        process.deaf.clear()
        process.until(lambda: process.starts("a") == process.starts("b") == process.starts("old") == 2)

        assert process.shown.gone in ([], ["old"])
        assert Path("old.yaml") not in process.many_jobs._runs
    assert process.code is ExitCode.DONE


def test_what_waits_for_a_job_to_stop_is_not_started_if_all_are_to_stop() -> None:
    with Process("old") as process:
        process.deaf.add("old")
        process.files = {Path("new.yaml"): process.files[Path("old.yaml")]}
        process.reload()
        process.stop.ask()
        process.deaf.clear()

        assert process.ended() is ExitCode.DONE
    assert process.starts("old") == 1


def test_if_nothing_is_to_be_changed_nothing_is(caplog: pytest.LogCaptureFixture) -> None:
    """A folder without files, or a wrong file and `--strict`; the log says so."""
    with Process("a") as process:
        process.files[Path("new.yaml")] = job("new")
        process.problem = SettingsInvalid("new.yaml", ["kind: is missing"])
        process.reload()

        assert process.starts("new") == 0
    assert "kind: is missing" in caplog.text
    assert process.code is ExitCode.DONE


def test_a_wrong_file_counts_as_a_job_that_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    """The others run; once it is correct its job starts."""
    with Process("b", wrong="a") as process:
        assert process.shown.failed == {"a": (ExitCode.BAD_JOB_FILE, f"a.yaml: {WRONG}")}
        process.ends["b"] = ExitCode.DONE

        assert process.ended() is ExitCode.BAD_JOB_FILE
    assert f"is not started: a.yaml is wrong: {WRONG}" in caplog.text
    with Process("b", wrong="a") as process:
        process.files[Path("a.yaml")] = job("a")
        process.reload()
        process.until(lambda: process.starts("a") == 1)

        assert process.starts("b") == 1
        assert process.shown.gone == [], "its name is that of its job"
    assert process.code is ExitCode.DONE


def test_if_spark_has_ended_a_wrong_file_does_not_keep_the_process_down() -> None:
    """A supervisor that takes 2 for the end of the matter must not see it."""
    with Process("b", wrong="a") as process:
        process.spark.gone = True
        process.ends["b"] = ExitCode.FAILED

        assert process.ended() is ExitCode.FAILED


def test_a_job_whose_file_becomes_wrong_goes_on_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    """Other changes take effect, and whoever reads the files again gets what still runs."""
    with Process("a", "b") as process:
        before = process.files[Path("a.yaml")]
        process.files |= {Path("a.yaml"): WrongFile("a", (WRONG,)), Path("new.yaml"): job("new")}
        process.reload()
        process.until(lambda: process.starts("new") == 1)

        assert process.running.jobs[Path("a.yaml")] == before
        assert process.starts("a") == process.starts("b") == 1
        assert not process.shown.failed
        assert f"goes on as it was: a.yaml is wrong: {WRONG}" in caplog.text
        process.files[Path("a.yaml")] = replace(before, max_records=7)
        process.reload()
        process.until(lambda: process.starts("a") == 2)
    assert process.code is ExitCode.DONE


def test_a_wrong_file_that_is_gone_is_not_reported_any_more() -> None:
    """Nor one that has another name now; and one that comes while others run is."""
    with Process("b") as process:
        process.files |= {Path(f"{name}.yaml"): WrongFile(name, (WRONG,)) for name in ("c", "d")}
        process.reload()
        process.until(lambda: len(process.shown.failed) == 2)
        del process.files[Path("c.yaml")]
        process.files[Path("d.yaml")] = job("other")
        process.reload()
        process.until(lambda: process.starts("other") == 1)

        assert process.shown.gone == ["c", "d"]
    assert process.code is ExitCode.DONE


def test_the_first_signal_stops_all_cleanly_and_a_second_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not take notice are left behind."""
    monkeypatch.setattr(many_jobs, "HURRY_S", 0.05)
    with Process("a", "deaf") as process:
        process.deaf.add("deaf")
        hurried = threading.Event()
        process.many_jobs._runs[Path("deaf.yaml")].request.at_once(hurried.set)
        os.kill(os.getpid(), signal.SIGTERM)
        process.until(lambda: not process.many_jobs._runs[Path("a.yaml")].runs)
        assert not hurried.is_set()
        process.now_s = 2 * SAME_REQUEST_S
        os.kill(os.getpid(), signal.SIGTERM)

        assert process.ended() is ExitCode.DONE
        assert hurried.is_set()
