"""A join that goes back in time between its faults, by thousands of records (`teacup rewind`).

Before most faults the job is stopped, or killed, with all written or in the middle of it, and is rewound, once or
twice: rows that are there stay (`keep`), or all are written again (`again`). Every other command is killed itself
first, and repeated.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.place import newest_folder, place_of
from teacup.base.errors import ExitCode
from teacup.base.times import iso
from teacup.kafka.log.broker_log import BrokerLog
from tests.crash.rewound_job import RewoundJob
from tests.crash.run import DEADLINE_S, Run, environment
from tests.crash.scenarios import Scenario

BACK = (8_000, 15_000)
"""By how many left records a job goes back."""
HALF_WAY_S = 1.5


class RewoundRun(Run):
    """One job over all its scenarios, which is rewound before each."""

    job: RewoundJob

    def __post_init__(self) -> None:
        self._numbers = random.Random(self.seed)
        self._commands, self._took_s = 0, 5.0
        self._number = 0  # of the folder that the job went on in last
        super().__post_init__()

    def run(self, scenario: Scenario) -> None:
        try:
            for _ in range(self._numbers.choice((0, 1, 1, 2))):
                self._go_back()
            batches = self._numbers.randrange(4)
            self._until(lambda: len(self._job.lines) >= batches or self.job.missing(self._reader) <= 0, "batches")
        except BaseException:
            self.close()
            raise
        super().run(scenario)

    def _go_back(self) -> None:
        """Stops the job, rewinds it, and starts it again. It may not have caught up with the time before."""
        if self._numbers.random() < 0.6:
            self.job.feed()
            time.sleep(self._numbers.uniform(0, HALF_WAY_S))
        if self._numbers.random() < 0.5:
            self.done.append("a stop")
            self._stop()
        else:
            self.done.append("kill -9")
            self._job.kill()
        written = self._numbers.choice(("keep", "again"))
        to_ms = self.job.before(self._numbers.randint(*BACK))
        self.done[-1] += f" and a rewind to {iso(to_ms)} ({written})"
        command = [sys.executable, "-m", "deploy.cli", "rewind", str(self.folder / "job.yaml")]
        command += ["--to", iso(to_ms), "--written", written]
        self._commands += 1
        if self._commands % 2 == 0:
            self._kill_midway(command)
        if self._to_the_end(command):
            self._account(to_ms, again=written == "again")
        self._process = self._start()

    def _kill_midway(self, command: list[str]) -> None:
        after_s = self._numbers.uniform(0, self._took_s)
        self.done[-1] += f", killed after {after_s:.2f} s and repeated"
        with environment(self.surroundings()):
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
        time.sleep(after_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _to_the_end(self, command: list[str]) -> bool:
        """Whether there was something to go back to: a job that has not caught up may not have come so far."""
        began = time.monotonic()
        with environment(self.surroundings()):
            ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self._took_s = time.monotonic() - began
        if ran.returncode == ExitCode.CHECKPOINT and "there is nothing to go back to" in ran.stderr:
            self.done[-1] += ", refused"
            return False
        if ran.returncode != ExitCode.DONE:
            raise self._violation(f"rewind ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
        return True

    def _account(self, to_ms: int, *, again: bool) -> None:
        """What is written now is final: the command has fenced whoever wrote it."""
        self._read_to_the_end()
        checkpoint = str(self.folder / "checkpoint")
        note = Checkpoint(newest_folder(checkpoint)).moved()
        rewound = None if note is None else note.rewound
        if note is None or rewound is None or rewound.to_ms != to_ms:
            raise self._violation(f"the checkpoint does not go on at {iso(to_ms)}: {note}")
        stays, nothing_since = rewound.kept is not None, rewound.before != self._number
        self._number = place_of(checkpoint).number
        lost = self.job.went_back(to_ms, note.left, again=again, stays=stays, in_place_of_last=nothing_since)
        if lost is not None:
            raise self._violation(lost)

    def _read_to_the_end(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        for role in ("out", "dead"):
            topic = self.job.topics[role]
            with closing(BrokerLog(topic, self.kafka)) as log:
                while not (self._reader.has_read(topic, ends := log.ends()) and all(e.settled for e in ends.values())):
                    if time.monotonic() > deadline:
                        raise self._violation(f"after the rewind {topic} is not read to its end {ends}")
                    time.sleep(0.05)
        self.job.missing(self._reader)
