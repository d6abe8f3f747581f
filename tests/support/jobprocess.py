"""`teacup run` as a process of its own, as operators run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.point_reader import wait_until_readable
from teacup.kafka.read.range_reader import RangeReader
from tests.support.leftovers import kill_session, kill_session_with_us
from tests.support.provenance import batch_of

DEADLINE_S = 480.0
MARKERS_S = 20.0


class JobProcess:
    """Starts the job at once; `lines` are the JSON objects that it has printed so far."""

    def __init__(self, folder: Path, job: Mapping[str, Any], command: Sequence[str] = ()) -> None:
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump({"log": "json", **job}))
        self.errors = folder / "errors.log"
        self.lines: list[dict[str, Any]] = []
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [*(command or (sys.executable, "-m", "deploy.cli", "run")), str(path)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        kill_session_with_us(self.process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    def until(self, condition: Any, what: str) -> None:
        """Wait until the condition holds; AssertionError if the job ends before that, or on a time-out."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode} before: {what}\n{self.logged()}"
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.logged()}"
            time.sleep(0.05)

    def ended(self) -> int:
        """The exit code."""
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the job did not end\n{self.logged()}") from None
        self._reader.join(5)
        return code

    def logged(self) -> str:
        return self.errors.read_text()[-40_000:]

    def error(self) -> str:
        """The last line of the log but for the one that sums the run up."""
        return [line for line in self.logged().strip().splitlines() if '"event": "end"' not in line][-1]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """kill -9 for all its processes: driver, JVM and Python workers."""
        kill_session(self.process.pid)
        self.process.wait()
        self._reader.join(5)


def records(kafka: Mapping[str, str], topic: str) -> list[dict[str, Any]]:
    """All records of a topic: key, value, time, and headers as a dictionary of texts.

    A commit is answered before its markers are in all partitions, so what is open is waited for: but not for ever, as
    a killed job may have left it open.
    """
    log, reader = BrokerLog(topic, kafka), RangeReader(topic, kafka)
    try:
        ends = log.ends()
        with suppress(KafkaUnavailable):
            ends = wait_until_readable(log, ends, MARKERS_S)
        return [
            {
                "key": key,
                "value": value,
                "partition": p,
                "time": time_ms,
                "headers": {h["key"]: (h["value"] or b"").decode() for h in headers or ()},
            }
            for p, end in ends.items()
            for batch in reader.read(p, end.start, end.stable)
            for key, value, time_ms, headers in zip(
                *(batch.column(name).to_pylist() for name in ("key", "value", "timestamp", "headers")), strict=True
            )
        ]
    finally:
        log.close()
        reader.close()


def uncommitted(checkpoint: Path) -> bool:
    """Whether the newest planned batch would run again."""
    planned, committed = (batches_in(checkpoint / log) for log in ("offsets", "commits"))
    return planned[-1:] != committed[-1:]


def batches_in(log: Path) -> list[int]:
    """The numbers of the batches that are noted in a folder of a checkpoint; a kill may leave half a file (`5.new`)."""
    return sorted(int(path.name) for path in log.glob("[0-9]*") if path.name.isdecimal())


def rows_of_last_plan(kafka: Mapping[str, str], topic: str, checkpoint: Path) -> int:
    """How many rows the last planned batch of a join has written."""
    plan = checkpoint / "offsets" / str(batches_in(checkpoint / "offsets")[-1])
    number = json.loads(plan.read_text().splitlines()[-1])["number"]
    tags = [BatchTag.parse(batch_of(record["headers"])) for record in records(kafka, topic)]
    return sum(tag is not None and tag.number == number for tag in tags)


def forget_last_commit(checkpoint: Path) -> None:
    """As if the job had been killed before the commit: the batch, completely written, runs again."""
    (checkpoint / "commits" / str(batches_in(checkpoint / "commits")[-1])).unlink()
