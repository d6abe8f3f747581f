"""Whose turn it is: locks, leases, and two standbys at once. No broker, no Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.checkpoint import lease_file, lock
from deploy.checkpoint.file import CheckpointFile
from deploy.checkpoint.lease import SILENT_S, Lease
from deploy.checkpoint.lease_file import LEASE, Keeper, Mark, leave_mark, remove_mark, standby_of
from deploy.checkpoint.lock import inspect_lock
from deploy.checkpoint.run_record import RunRecord
from deploy.errors import LeaseLost, StandbyRefused
from deploy.jobs import standby as standby_module
from deploy.jobs.standby import StandbyTurn
from deploy.jobs.stopping import Stop
from deploy.watch.life.moment import JobState
from deploy.watch.listener import Listener
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.spark.cluster import Executors
from teacup.spark.errors import NoExecutor
from tests.support.waiting import wait_until

_HOLD = """
import sys, time
from deploy.checkpoint.file import CheckpointFile
from deploy.checkpoint.lock import checkpoint_lock
from deploy.checkpoint.lease import Lease
with checkpoint_lock(sys.argv[1]):
    if sys.argv[2:]:
        import os, socket
        CheckpointFile(sys.argv[1], "teacup.lease").write(Lease(7, "old", os.getpid(), socket.gethostname()))
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(checkpoint: Path, *lease: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock, and with `lease` a lease that it never renews."""
    command = [sys.executable, "-c", _HOLD, str(checkpoint), *lease]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def kind_on(checkpoint: object, *, exactly_once: bool = True, trigger_ms: int | None = 0) -> Any:
    common = SimpleNamespace(checkpoint=str(checkpoint), trigger_ms=trigger_ms)
    return SimpleNamespace(name="clicks", common=common, exactly_once=exactly_once)


class Heard(Listener):
    def __init__(self) -> None:
        self.now: JobState | None = None

    def moment(self, now: JobState) -> None:
        self.now = now


class Waiting:
    """A standby in a thread; `go` lets its work end."""

    def __init__(self, checkpoint: object, found: Executors = Executors(1), **how: Any) -> None:  # noqa: B008 - frozen
        self.heard, self.stop = Heard(), Stop()
        self.works, self.go = threading.Event(), threading.Event()
        self.code: ExitCode | None = None
        self.error: NoExecutor | None = None
        self.check: Callable[[], None] = lambda: None
        self.executors: Callable[[], Executors] = lambda: found
        self._turn = StandbyTurn(kind_on(checkpoint, **how), self.heard, self.stop)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.code = self._turn(self._work, lambda: self.executors())
        except NoExecutor as error:
            self.error = error

    def _work(self, check: Callable[[], None], _record: RunRecord) -> ExitCode:
        self.check = check
        self.works.set()
        assert self.go.wait(120)
        check()
        return ExitCode.DONE

    @property
    def behind(self) -> str:
        return "" if self.heard.now is None else self.heard.now.behind

    def ended(self) -> ExitCode | None:
        self.go.set()
        self.thread.join(120)
        return self.code


def has_lost(check: Callable[[], None]) -> bool:
    try:
        check()
    except LeaseLost:
        return True
    return False


def url() -> str:
    return f"memory://standby-{uuid.uuid4().hex}"


def test_it_says_that_it_has_no_executor_and_ends_when_that_takes_too_long(tmp_path: Path) -> None:
    """It could not go on with the job: the listener hears it, status finds it."""

    def gone() -> Executors:
        raise NoExecutor("no executor for 10m")

    with holder(tmp_path):
        standby = Waiting(tmp_path, Executors(0, missing_ms=1_000))
        wait_until(lambda: standby.heard.now is not None and standby.heard.now.no_executor_since_ms == 1_000)
        wait_until(lambda: (mark := standby_of(str(tmp_path), wall_ms())) and mark.no_executor_since_ms == 1_000)
        standby.executors = gone
        standby.thread.join(120)

    assert isinstance(standby.error, NoExecutor)
    assert not standby.works.is_set()
    assert standby_of(str(tmp_path), wall_ms()) is None


def test_it_waits_for_a_process_without_a_lease_and_takes_over_when_that_is_killed(tmp_path: Path) -> None:
    """The listener hears for whom it waits; status finds its mark; a clean end releases the lease."""
    with holder(tmp_path) as process:
        standby = Waiting(tmp_path)
        wait_until(lambda: standby.behind == f"process {process.pid}")
        wait_until(lambda: standby_of(str(tmp_path), wall_ms()) is not None)
        assert not standby.works.is_set()
        process.kill()
        assert standby.works.wait(60)

    assert standby_of(str(tmp_path), wall_ms()) is None
    assert inspect_lock(tmp_path).held
    assert standby.ended() == ExitCode.DONE
    assert not inspect_lock(tmp_path).held
    lease = CheckpointFile(str(tmp_path), LEASE).read(Lease)
    assert lease is not None
    assert (lease.number, lease.released) == (1, True)


def test_it_takes_over_from_a_holder_that_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the lock is held: its file is replaced, so that other starts find the new holder."""
    monkeypatch.setattr("deploy.checkpoint.lease.SILENT_S", 0.3)
    with holder(tmp_path, "lease") as process:
        standby = Waiting(tmp_path)
        assert standby.works.wait(60)
        held = inspect_lock(tmp_path)
        assert held.holder is not None
        assert held.holder.process != str(process.pid)

    assert inspect_lock(tmp_path).held, "the old one's end frees only the file that was replaced"
    assert standby.ended() == ExitCode.DONE


def test_without_transactions_a_silent_holder_keeps_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would keep it from writing when it comes back; once it has ended, the standby goes on."""
    monkeypatch.setattr("deploy.checkpoint.lease.SILENT_S", 0.1)
    with holder(tmp_path, "lease"):
        standby = Waiting(tmp_path, exactly_once=False)
        wait_until(lambda: standby._turn._watched is not None and standby._turn._watched.silent_s > 0.5)
        assert not standby.works.is_set()
    assert standby.works.wait(60)
    assert standby.ended() == ExitCode.DONE


def test_at_a_url_a_lease_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one runs, the second waits as long as the first renews, and takes over when that has ended."""
    monkeypatch.setattr("deploy.checkpoint.lease.GONE_S", 0.1)
    checkpoint = url()
    one = Waiting(checkpoint)
    assert one.works.wait(60)
    two = Waiting(checkpoint)
    wait_until(lambda: two.behind.startswith("process"))
    wait_until(lambda: two._turn._watched is not None and (two._turn._watched.lease or Lease(0, "", 0, "")).beat > 2)
    assert not two.works.is_set()

    assert one.ended() == ExitCode.DONE
    assert two.works.wait(60)
    assert two.ended() == ExitCode.DONE


def test_whoever_was_taken_for_lost_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    """And writes neither the lease nor the record of the new one."""
    standby = Waiting(tmp_path)
    assert standby.works.wait(60)
    theirs = Lease(9, "later", 4711, "node-9")
    CheckpointFile(str(tmp_path), LEASE).write(theirs)

    wait_until(lambda: has_lost(standby.check))
    record = (tmp_path / "teacup.run").read_text()
    assert standby.ended() == ExitCode.TAKEN_OVER
    assert CheckpointFile(str(tmp_path), LEASE).read(Lease) == theirs
    assert (tmp_path / "teacup.run").read_text() == record


def test_a_process_that_goes_on_after_a_stop_looks_before_it_writes(tmp_path: Path) -> None:
    """By its monotonic clock, which went on: not only when its thread comes round again."""
    now_s = [0.0]
    file = CheckpointFile(str(tmp_path), LEASE)
    keeper = Keeper(file, Lease(1, "mine", 1, "node-1"), clock=lambda: now_s[0])
    keeper.renew()
    file.write(Lease(2, "theirs", 2, "node-2"))
    keeper.check()

    now_s[0] += SILENT_S
    with pytest.raises(LeaseLost, match="process 2 on node-2 has taken the job over"):
        keeper.check()


def test_a_late_write_of_an_earlier_holder_is_overwritten(tmp_path: Path) -> None:
    """The later one goes on."""
    file = CheckpointFile(str(tmp_path), LEASE)
    later = Keeper(file, Lease(2, "later", 2, "node-2"))
    file.write(Lease(1, "earlier", 1, "node-1"))

    later.renew()
    later.check()

    found = file.read(Lease)
    assert found is not None
    assert found.holder == "later"


def test_of_two_standbys_that_take_over_at_once_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was overwritten waits on."""
    monkeypatch.setattr("deploy.checkpoint.lease.GONE_S", 0.1)
    monkeypatch.setattr(standby_module, "POLLS_URL_EVERY_S", 0.05)
    checkpoint = url()
    pair = [Waiting(checkpoint) for _ in range(2)]
    wait_until(lambda: any(standby.works.is_set() for standby in pair))
    first, second = sorted(pair, key=lambda standby: not standby.works.is_set())
    wait_until(lambda: second.behind.startswith("process"))
    assert not second.works.is_set()

    assert first.ended() == ExitCode.DONE
    assert second.works.wait(60)
    assert second.ended() == ExitCode.DONE


@pytest.mark.parametrize(
    ("checkpoint", "how", "why"),
    [
        ("s3a://bucket/state", {"exactly_once": False}, "at least once"),
        ("s3a://bucket/state", {"trigger_ms": None}, "available_now"),
    ],
)
def test_what_cannot_have_a_standby_is_refused_before_anything_starts(
    checkpoint: str, how: dict[str, Any], why: str
) -> None:
    """With what to do."""
    with pytest.raises(StandbyRefused, match=why):
        StandbyTurn(kind_on(checkpoint, **how), Listener(), Stop())


def test_a_shared_folder_is_no_proof_without_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine's lock need not show there."""
    for module in (lock, standby_module):
        monkeypatch.setattr(module, "file_system_of", lambda _: "nfs4")
    with pytest.raises(StandbyRefused, match="on nfs4"):
        StandbyTurn(kind_on(tmp_path, exactly_once=False), Listener(), Stop())
    StandbyTurn(kind_on(tmp_path), Listener(), Stop())


def test_a_standby_that_is_asked_to_stop_ends_with_nothing_done(tmp_path: Path) -> None:
    """Its mark is gone."""
    with holder(tmp_path):
        standby = Waiting(tmp_path)
        wait_until(lambda: standby.behind)
        standby.stop.ask()
        standby.thread.join(60)
        assert (standby.code, standby.works.is_set()) == (ExitCode.DONE, False)
        assert standby_of(str(tmp_path), wall_ms()) is None


def test_a_mark_that_is_old_or_of_another_standby(tmp_path: Path) -> None:
    """A killed standby leaves its mark; nobody removes that of another one."""
    mine, theirs = Mark(1, "node-1", 0, 1_000), Mark(2, "node-2", 0, 1_000)
    leave_mark(str(tmp_path), theirs)
    remove_mark(str(tmp_path), mine)

    assert standby_of(str(tmp_path), 2_000) == theirs
    assert standby_of(str(tmp_path), 1_000 + round(lease_file.SHOWN_S * 1000) + 1) is None
