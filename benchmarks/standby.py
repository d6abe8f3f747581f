"""kill -9, and a lost machine, under load: how long until the next row, with a restart and with a warm standby?

    python -m benchmarks.standby [--rate 5000] [--rounds 3] [--only restart,kill,lost]

The producer and the job are those of `benchmarks.latency`, exactly once, with the checkpoint in a folder of this
machine.

    restart   driver, JVM and workers are killed at once; the job is started again at the same moment
    kill      the same, and a standby is waiting
    lost      the running job's processes are stopped (SIGSTOP), as a lost machine falls silent; a standby waits. Once
              that has taken over they go on (SIGCONT): they must end by themselves, with their own exit code

Each takeover is broken down: until it was noticed, until topics and checkpoint were looked at and the output claimed,
until batches began, until the first batch was carried out, and until a reader of committed records had a row.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.commandline import broker_and_folder, chosen, machine, promise_line
from benchmarks.latency import CommittedReader, create_live_topics, live_job, produce
from benchmarks.measure import RunFailed, child_environment
from benchmarks.restart import kill
from deploy.broker.broker import Broker
from deploy.cli.commands import log_job
from deploy.jobfile.kinds import Consent
from deploy.jobs.join import JoinJobKind
from deploy.jobs.runner import run
from deploy.jobs.standby import StandbyTurn
from deploy.jobs.stopping import Stop
from deploy.watch.listener import Listener, Report
from teacup.base.errors import ExitCode

RUNS_FOR_S = 8.0
PATIENCE_S = 180.0
PROMISED_S = {"kill": 3.0, "lost": 10.0}
MODES = ("restart", "kill", "lost")
STEPS = (("began", "noticed"), ("claimed", "claimed"), ("started", "batches"), ("batch", "first batch"))


class Marks(Listener):
    """Prints when each step of a start is done, by the monotonic clock that all processes share."""

    watches = False

    def batch(self, report: Report) -> None:
        if report.records:
            mark("batch")


class TimedKind(JoinJobKind):
    """The job, which marks the steps of its start."""

    def read_checkpoint(self) -> None:
        mark("began")
        super().read_checkpoint()

    def prepare(self) -> None:
        super().prepare()
        mark("claimed")

    def stream(self, *arguments: Any) -> Any:
        made = super().stream(*arguments)
        mark("started")
        return made


def mark(step: str) -> None:
    sys.stdout.write(json.dumps({"mark": step, "at_s": time.monotonic()}) + "\n")
    sys.stdout.flush()


class Process:
    """One process of the job."""

    def __init__(self, bootstrap: str, folder: Path, number: int, *, standby: bool) -> None:
        self.log = folder / f"job-{number}.log"
        command = [sys.executable, "-m", "benchmarks.standby", "--job", bootstrap, "--folder", str(folder)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *(["--standby"] if standby else [])],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=child_environment(),
                start_new_session=True,
            )

    def marks(self) -> dict[str, float]:
        """When each step was done first."""
        found: dict[str, float] = {}
        for line in self.log.read_text(errors="replace").splitlines():
            if line.startswith('{"mark"'):
                data = json.loads(line)
                found.setdefault(data["mark"], data["at_s"])
        return found

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise RunFailed(f"{what} did not happen:\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.02)

    def warm(self) -> bool:
        return "standby: warm" in self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            os.kill(pid, number)

    def _pids(self) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.getsid(int(entry.name)) == self.process.pid:
                        yield int(entry.name)
                except ProcessLookupError:
                    continue


def taken_over(reader: CommittedReader, next_one: Process, began_s: float) -> float:
    """Returns when a reader of committed records had the first row of the new process; prints the steps."""
    next_one.until(lambda: "claimed" in next_one.marks(), "the claim")
    before = reader.clicks  # whatever the old process committed is visible by now, or never will be
    next_one.until(lambda: reader.clicks > before, "a row")
    ended_s = time.monotonic()
    next_one.until(lambda: "batch" in next_one.marks(), "a batch")
    marks, at_s, steps = next_one.marks(), began_s, []
    for step, name in STEPS:
        steps.append(f"{name} {marks[step] - at_s:+.2f}")
        at_s = marks[step]
    print(f"    {ended_s - began_s:.2f} s to the first row: {', '.join(steps)}")
    return ended_s - began_s


def measure(mode: str, rounds: int, folder: Path, broker: Broker) -> float:
    """Returns the longest time without rows."""
    reader = CommittedReader(broker.bootstrap)
    standby = mode != "restart"
    numbers = iter(range(1_000))
    (folder / mode).mkdir()

    def started() -> Process:
        return Process(broker.bootstrap, folder / mode, next(numbers), standby=standby)

    worst_s, running = 0.0, started()
    begun = [running]
    try:
        running.until(lambda: "batch" in running.marks(), "the first batch")
        for number in range(rounds):
            if standby:
                waiting = started()
                begun.append(waiting)
                waiting.until(waiting.warm, "the standby's warm-up")
            time.sleep(RUNS_FOR_S + number / 7)  # not always at the same point of a batch
            began_s = time.monotonic()
            if mode == "lost":
                running.signal(signal.SIGSTOP)
            else:
                kill(running.process)
            if not standby:
                waiting = started()
                begun.append(waiting)
            worst_s = max(worst_s, taken_over(reader, waiting, began_s))
            if mode == "lost":
                back_s = time.monotonic()
                running.signal(signal.SIGCONT)
                code = running.process.wait(PATIENCE_S)
                print(f"    the old one ended {time.monotonic() - back_s:.2f} s after it came back, with code {code}")
                if code != ExitCode.TAKEN_OVER:
                    raise RunFailed(running.log.read_text(errors="replace")[-3000:])
            running = waiting
    finally:
        for process in begun:
            if process.process.poll() is None:
                process.signal(signal.SIGCONT)
                kill(process.process)
        reader.close()
    return worst_s


def compare(modes: list[str], rate: int, rounds: int, folder: Path, broker: Broker) -> None:
    create_live_topics(broker.bootstrap)
    context = multiprocessing.get_context("spawn")
    producer = context.Process(target=produce, args=(broker.bootstrap, rate, 3_600.0), daemon=True)
    producer.start()
    try:
        for mode in modes:
            print(f"{mode}:")
            worst_s = measure(mode, rounds, folder, broker)
            line = f"{mode}: readers wait at most {worst_s:.2f} s"
            if mode in PROMISED_S:
                line = promise_line(worst_s <= PROMISED_S[mode], f"{line} (at most {PROMISED_S[mode]:g})")
            print(line)
    finally:
        producer.kill()


def run_job(bootstrap: str, folder: Path, *, standby: bool) -> ExitCode:
    """Runs the job in this process, as `teacup run` does."""
    with Stop() as stop:
        log_job(as_json=True)
        kind = TimedKind(live_job(bootstrap, folder / "checkpoint", "exactly-once"))
        kind.consent = Consent(take_over=True, standby=standby)
        listener = Marks()
        return run(kind, listener, stop, turn=StandbyTurn(kind, listener, stop) if standby else None)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standby", description="Takeovers under load.")
    parser.add_argument("--rate", type=int, default=5_000, help="records per second, left and right together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(MODES))
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--standby", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job is not None:
        sys.exit(run_job(asked.job, asked.folder, standby=asked.standby))
    print(machine())
    with broker_and_folder() as (broker, folder):
        compare(chosen(parser, asked.only, MODES), asked.rate, asked.rounds, folder, broker)


if __name__ == "__main__":
    _main()
