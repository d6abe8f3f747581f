"""Jobs of every kind in one process, one of them under load: what happens to one does not disturb the others."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from deploy.checkpoint.run_record import last_run
from dev.lookup_parts import FEEDER, LOOKUP
from teacup.base.errors import ExitCode
from teacup.kafka.log.broker_log import BrokerLog
from tests.conftest import TopicFactory
from tests.crash.jobs import DedupJob, Job, LookupWorld, WindowJob
from tests.crash.reader import CommittedReader
from tests.crash.run import environment
from tests.crash.traffic import PARTITIONS
from tests.deploy.jobs.processes import ready, said, workers
from tests.support.jobprocess import JobProcess
from tests.support.leftovers import of_session
from tests.support.sparkjoin import Put, produce
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_000)]
SHARED = {"spark": {"master": "local[2]"}, "log": "json", "metrics": {"port": 0}}
LIMIT_S = 480.0


class Mixed:
    """A window join, a lookup join, its feeder, and a deduplication, each with its oracle; two joins that are idle, and
    one that meets a record which it refuses."""

    def __init__(self, kafka: Mapping[str, str], topic: TopicFactory, folder: Path) -> None:
        self.kafka, self.files = kafka, folder / "jobs"
        self.files.mkdir()

        def topics(kind: type[WindowJob | LookupWorld | DedupJob]) -> dict[str, str]:
            return {role: topic(PARTITIONS, prefix=f"mixed-{role}") for role in kind.roles}

        self.window = WindowJob("busy", kafka, topics(WindowJob), folder / "busy", seed=1)
        self.lookup = LookupWorld("looked-up", kafka, topics(LookupWorld), folder / "parts", 2, "")
        self.dedup = DedupJob("unique", kafka, topics(DedupJob), folder / "unique", seed=3)
        self.judged: list[Job] = [self.window, self.lookup, self.dedup]
        self.topics = [job.topics[role] for job in (self.window, self.lookup, self.dedup) for role in job.read]
        self.of: dict[str, dict[str, Any]] = {
            "busy": self.window.document(),
            "looked-up": self.lookup.document_of(LOOKUP),
            "looked-up-feeder": self.lookup.document_of(FEEDER),
            "unique": self.dedup.document(),
            **{name: self._alone(name, topic, folder / name) for name in ("idle-1", "idle-2", "refuses")},
        }
        self.of = {name: {**document, **SHARED} for name, document in self.of.items()}
        self.dead = topic(PARTITIONS, prefix="mixed-dead")
        self.beside = self.of["idle-2"]  # its file is given beside the folder
        for name in self.of.keys() - {"idle-2"}:
            self.write(name)

    def _alone(self, name: str, topic: TopicFactory, folder: Path) -> dict[str, Any]:
        sides = {
            side: {"topic": topic(PARTITIONS, prefix=f"{name}-{side}"), "disorder": "0s"} for side in ("left", "right")
        }
        sides["left"]["format"] = "json"
        return {
            "name": name,
            "kind": "window-join",
            "kafka": dict(self.kafka),
            **sides,
            "join": {"before": "2s"},
            "output": {"topic": topic(PARTITIONS, prefix=name)},
            "checkpoint": str(folder / "checkpoint"),
            "window_folder": str(folder / "windows"),
        }

    def write(self, name: str) -> None:
        (self.files / f"{name}.yaml").write_text(yaml.safe_dump(self.of[name]))

    def feed(self) -> None:
        for job in self.judged:
            job.feed()

    def refused(self) -> None:
        produce(dict(self.kafka), self.of["refuses"]["left"]["topic"], [Put(0, b"k", 1_700_000_000_000, b"no JSON")])

    @contextmanager
    def load(self) -> Iterator[None]:
        """Chunk after chunk for the window join, meanwhile."""
        ended = threading.Event()

        def again() -> None:
            while not ended.wait(1.0):
                self.window.feed()

        thread = threading.Thread(target=again, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(LIMIT_S)

    def started_again(self, process: JobProcess) -> set[str]:
        return {name for name in self.of if said(process, name, "is started again")()}


@pytest.fixture
def mixed(kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path) -> Iterator[Mixed]:
    made = Mixed(kafka, topic_factory, tmp_path)
    try:
        yield made
    finally:
        made.lookup.close()


def test_a_busy_job_beside_a_lookup_join_its_feeder_and_idle_ones(mixed: Mixed, tmp_path: Path) -> None:
    """A job that is refused a record, a worker that is killed, files that change: each has the rows of its oracle."""
    reader = CommittedReader(mixed.kafka["bootstrap.servers"], mixed.topics, PARTITIONS)
    with closing(reader), environment(mixed.lookup.environment()):
        command = (sys.executable, "-m", "deploy.cli", "run", str(mixed.files))
        process = JobProcess(tmp_path, mixed.beside, command)

        def through(*jobs: Job) -> Callable[[], bool]:
            return lambda: all(job.missing(reader) <= 0 for job in jobs)

        try:
            process.until(lambda: ready(process)[0] == 200, "all run")
            mixed.feed()
            process.until(through(*mixed.judged), "each has written its rows")
            with mixed.load():
                mixed.refused()
                process.until(lambda: "refuses: failed" in ready(process)[1], "the one that is refused a record ends")
                mixed.lookup.feed()
                mixed.dedup.feed()
                process.until(through(mixed.lookup, mixed.dedup), "the others go on beside the busy one")
                assert last_run(mixed.of["refuses"]["checkpoint"]).code == ExitCode.REFUSED  # type: ignore[union-attr]
                assert mixed.started_again(process) == set()

                worker = workers(process)[0]
                os.kill(worker, signal.SIGKILL)
                wait_until(lambda: not psutil.pid_exists(worker), within_s=LIMIT_S)
                mixed.lookup.feed()
                mixed.dedup.feed()
                process.until(through(mixed.lookup, mixed.dedup), "nothing is lost with a worker")

                mixed.of["busy"]["records_per_batch"] = 400
                mixed.of["refuses"]["topics"] = {"dead_letter": mixed.dead}
                for name in ("busy", "refuses"):
                    mixed.write(name)
                process.process.send_signal(signal.SIGHUP)
                for name in ("busy", "refuses"):
                    process.until(said(process, name, "is started again"), "changed files are taken")
                mixed.lookup.feed()
                mixed.dedup.feed()
                process.until(through(mixed.lookup, mixed.dedup), "the others go on")
            process.until(through(*mixed.judged), "the changed one goes on where it was")
            process.until(lambda: ready(process)[0] == 200, "all run again")
            assert mixed.started_again(process) == {"busy", "refuses"}
            assert process.stop() == ExitCode.DONE
        finally:
            process.kill()
        assert [*of_session(process.process.pid)] == []
        for name in mixed.topics:
            with closing(BrokerLog(name, mixed.kafka)) as log:
                ends = log.ends()
            wait_until(lambda name=name, ends=ends: reader.has_read(name, ends), within_s=LIMIT_S)  # type: ignore[misc]
        for job in mixed.judged:
            assert [fault for fault in (*job.last_faults(reader), *job.faults(reader)) if fault is not None] == []
