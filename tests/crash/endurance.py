"""One job for hours, under load, with a fault a minute: every row once and right, and nothing grows.

    make endurance [MINUTES=100] [RATE=5000] [SEED=7]
    python -m tests.crash.endurance --minutes 40 --rate 50000

Three of four left records have a right one, a second older than they are; which ones follows from their numbers, which
are their keys. A reader of committed rows runs beside everything and looks at each row as it comes. Each minute a
fault is drawn, and what is left behind is counted: memory, threads, open files of the job's processes, bytes and files
in its folders, groups and transactional ids in the broker. Faults that end the job come in the first half only, so that
in the second one its driver lives long enough to show what grows.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import pss_bytes
from deploy.broker.broker import Broker
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.client import committed_only
from teacup.kafka.delivery.provenance import provenance_of
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter
from tests.support.jobprocess import JobProcess

LEFT, RIGHTS, OUT = "endured-left", "endured-right", "endured-out"
PARTITIONS = 4
ALONE = 4  # each fourth left record has no right one
KEEPS = {"segment.bytes": str(256 << 20), "retention.bytes": str(2 << 30)}  # a partition: half an hour of 50,000/s
LAG_MS = 1_000
TICK_S = 0.01
MINUTE_S = 60.0
LAST = 100  # per partition: times count by blocks
PAUSE_S = 12.0  # longer than the time-out of a transaction
CAUGHT_UP_S = 3.0  # so much of the traffic may be on its way
DEADLINE_S = 300.0
HEALS_AFTER_S = 100.0
LOST_TRACK = "is out of sync with the underlying log"
GROWTH = 1.1
"""At most, of the last quarter over the third one, of each thing that is counted."""
VALUE = b'{"n": 1, "note": "%s"}' % (b"x" * 120)

Numbers = npt.NDArray[np.int64]


class Violated(Exception):
    """A row is wrong, missing or doubled, or the job does not go on."""


def write_traffic(bootstrap: str, rate: int, ending: Any, written: Synchronized[int]) -> None:
    """Writes to both topics until `ending` is set; `written` counts the left records."""
    writer = TopicWriter({"bootstrap.servers": bootstrap, "delivery.timeout.ms": "600000", "linger.ms": "5"})
    waiting: deque[tuple[int, Numbers]] = deque()
    made, owed, last_s = 0, 0.0, time.monotonic()
    while not ending.is_set() or waiting:
        now_s, now_ms = time.monotonic(), wall_ms()
        owed, last_s = owed + (now_s - last_s) * rate * ALONE / (2 * ALONE - 1), now_s
        new = np.arange(made, made + int(owed), dtype=np.int64)
        if len(new) and not ending.is_set():
            owed, made = owed - len(new), made + len(new)
            _write(writer, RIGHTS, new[new % ALONE != ALONE - 1], now_ms)
            waiting.append((now_ms + LAG_MS, new))
        while waiting and waiting[0][0] <= now_ms:
            left_ms, left = waiting.popleft()
            _write(writer, LEFT, left, left_ms)  # that time also where this process stood still meanwhile
            written.value += len(left)
        time.sleep(TICK_S)
    # These let the last left records through, which would wait for as long as right may be silent.
    for p in range(PARTITIONS):
        writer.write(RIGHTS, [b"last"] * LAST, [VALUE] * LAST, None, [wall_ms()] * LAST, [p] * LAST)
    writer.flush()
    writer.close()


def _write(writer: TopicWriter, topic: str, numbers: Numbers, time_ms: int) -> None:
    if len(numbers):
        keys = pl.Series(numbers).cast(pl.String).cast(pl.Binary).to_arrow()
        writer.write(topic, keys, [VALUE] * len(numbers), timestamps=[time_ms] * len(numbers))


class Seen:
    """The rows so far: each number once, matched or not as it has to be. Pure."""

    def __init__(self) -> None:
        self._seen = np.zeros(1 << 20, np.bool_)
        self.count = 0

    def take(self, numbers: Numbers, matched: npt.NDArray[np.bool_]) -> None:
        """Takes more rows. Raises `Violated`."""
        while int(numbers.max()) >= len(self._seen):
            self._seen = np.concatenate([self._seen, np.zeros_like(self._seen)])
        if (doubled := self._seen[numbers]).any() or len(np.unique(numbers)) != len(numbers):
            raise Violated(f"rows are doubled: {numbers[doubled][:5]}, or within {numbers[:5]} and those after it")
        if (wrong := matched != (numbers % ALONE != ALONE - 1)).any():
            raise Violated(f"rows have the wrong outcome: {numbers[wrong][:5]}, matched: {matched[wrong][:5]}")
        self._seen[numbers] = True
        self.count += len(numbers)


class Rows:
    """The committed rows of the output, as a reader beside the job sees them."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        committed = committed_only(kafka)
        self._log, self._reader = BrokerLog(OUT, committed), RangeReader(OUT, committed)
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        self._seen = Seen()

    @property
    def count(self) -> int:
        return self._seen.count

    def look(self) -> None:
        """Reads what has been committed since the last look. Raises `Violated`."""
        for p, ends in self._log.ends().items():
            for batch in self._reader.read(p, self._next[p], ends.stable):
                numbers = pl.Series(batch.column("key")).cast(pl.String).cast(pl.Int64).to_numpy()
                matched = provenance_of(batch.column("headers"))["right"].is_not_null().to_numpy()
                self._seen.take(numbers, matched)
            self._next[p] = ends.stable

    def close(self) -> None:
        self._log.close()
        self._reader.close()


def count(run: Endurance) -> dict[str, int]:
    """What there is now, by name."""
    memory = threads = files = processes = 0
    for process in _tree(run.job):
        with suppress(psutil.Error, FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            memory, threads = memory + pss_bytes(process.pid), threads + process.num_threads()
            files, processes = files + process.num_fds(), processes + 1
    paths = [path for name in ("checkpoint", "windows") for path in (run.folder / name).rglob("*")]
    groups = run.admin.list_consumer_groups(request_timeout=30).result()
    return {
        "processes": processes,
        "MB": memory // 1_000_000,
        "threads": threads,
        "open files": files,
        "files": len(paths),
        "MB of files": sum(_size(path) for path in paths) // 1_000_000,
        "groups": len(groups.valid),
        "transactional ids": _transactional_ids(run.kafka),
    }


def _tree(job: JobProcess) -> list[psutil.Process]:
    root = psutil.Process(job.process.pid)
    return [root, *root.children(recursive=True)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _transactional_ids(kafka: Mapping[str, str]) -> int:
    """How many the coordinator knows: the keys of its log that have a value."""
    known: dict[bytes, bool] = {}
    with closing(BrokerLog("__transaction_state", kafka)) as log, closing(RangeReader(log.topic, kafka)) as reader:
        for p, ends in log.ends().items():
            for batch in reader.read(p, ends.start, ends.stable):
                known |= zip(batch.column("key").to_pylist(), batch.column("value").is_valid().to_pylist(), strict=True)
    return sum(known.values())


class Endurance:
    """The job, its broker, and the faults."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._broker, self.folder = broker, folder
        self.kafka = {"bootstrap.servers": broker.bootstrap}
        self.admin = AdminClient(self.kafka)
        new = [NewTopic(topic, PARTITIONS, 1, config=KEEPS) for topic in (LEFT, RIGHTS, OUT)]
        for future in self.admin.create_topics(new).values():
            future.result(30)
        self.job = self._started()
        self.restarts = 0
        self.ended: list[str] = []  # where the job ended though nobody struck it
        self._healed = 0

    def _started(self) -> JobProcess:
        return JobProcess(
            self.folder,
            {
                "name": "endured",
                "kind": "window-join",
                "kafka": self.kafka,
                "left": {"topic": LEFT, "disorder": "0s", "format": "json"},
                "right": {"topic": RIGHTS, "disorder": "0s", "format": "json"},
                "join": {"before": "5s", "after": "0s"},
                "producer_delay": "5m",  # longer than any fault
                "output": {"topic": OUT},
                "checkpoint": str(self.folder / "checkpoint"),
                "window_folder": str(self.folder / "windows"),
            },
        )

    def again(self, why: str) -> None:
        """Starts the job again if it has ended."""
        if self.job.process.poll() is None:
            return
        if why:
            self.ended.append(f"{why}: {self.job.process.returncode} {self.job.error()[:300]}")
        self.restarts += 1
        self.job = self._started()

    def kill_job(self) -> None:
        self.job.kill()
        self.again("")

    def stop_job(self) -> None:
        if (code := self.job.stop()) != ExitCode.DONE:
            raise Violated(f"a stop ended with {code}: {self.job.logged()}")
        self.again("")

    def kill_worker(self) -> None:
        self._signal_workers(signal.SIGKILL)

    def pause_workers(self) -> None:
        self._signal_workers(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        self._signal_workers(signal.SIGCONT)

    def pause_job(self) -> None:
        paused = _tree(self.job)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in paused:
                _signal(process, number)
            if number == signal.SIGSTOP:
                time.sleep(PAUSE_S)

    def pause_broker(self) -> None:
        self._broker.pause()
        time.sleep(PAUSE_S)
        self._broker.resume()

    def kill_broker(self) -> None:
        self._broker.kill()
        self._broker.start()

    def restart_broker(self) -> None:
        self._broker.stop()
        self._broker.start()

    def heal(self) -> None:
        """Restarts the broker if its group coordinator has lost track of its log: Kafka 4.1 never gets out of that."""
        lost = self._broker.log_file.read_text(errors="replace").count(LOST_TRACK)
        if lost > self._healed:
            self._healed = lost
            print("     the broker's coordinator has lost track of its log; the broker is restarted", flush=True)
            self.restart_broker()

    def faults(self, *, ending: bool) -> dict[str, Callable[[], None]]:
        """By name; with those that end the job, or without."""
        lasting = [
            self.kill_worker, self.pause_workers, self.pause_job, self.pause_broker, self.kill_broker,
            self.restart_broker,
        ]  # fmt: skip
        return {fault.__name__: fault for fault in [*lasting, *([self.kill_job, self.stop_job] if ending else [])]}

    def _signal_workers(self, number: signal.Signals) -> None:
        for process in _tree(self.job):
            with suppress(psutil.Error):  # it has ended meanwhile
                if "teacup.spark.worker_daemon" in process.cmdline():
                    for worker in process.children():
                        _signal(worker, number)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)


def endure(minutes: int, rate: int, seed: int, folder: Path, broker: Broker) -> list[str]:
    """Returns what has grown, and where the job has ended by itself. Raises `Violated`."""
    chance = random.Random(seed)
    run = Endurance(broker, folder)
    context = multiprocessing.get_context("spawn")
    ending, written = context.Event(), context.Value("q", 0)
    producer = context.Process(target=write_traffic, args=(broker.bootstrap, rate, ending, written), daemon=True)
    producer.start()
    rows, counted = Rows(run.kafka), []
    try:
        for minute in range(minutes):
            began_s = time.monotonic()
            faults = run.faults(ending=minute < minutes / 2)
            name = chance.choice(sorted(faults)) if minute else "none"
            if minute:
                faults[name]()
            back_s = _caught_up(run, rows, lambda: written.value, rate, name)
            counts = count(run)
            counted.append((name, counts))
            said = ", ".join(f"{number:,} {what}" for what, number in counts.items())
            print(f"{minute:4} {name:15} back after {back_s:5.1f} s; {rows.count:,} rows; {said}", flush=True)
            while time.monotonic() < began_s + MINUTE_S:
                _look(run, rows, name)
                time.sleep(1)
        ending.set()
        producer.join(DEADLINE_S)
        _caught_up(run, rows, lambda: written.value, 0, "the end")
        if rows.count != written.value:
            raise Violated(f"{written.value:,} left records, {rows.count:,} rows")
        run.stop_job()
        rows.look()
    finally:
        run.job.kill()
        rows.close()
    print(f"{rows.count:,} rows, each once and right; the job was started {run.restarts} times more")
    return [*grown(counted), *run.ended]


def _look(run: Endurance, rows: Rows, name: str) -> None:
    run.again(name)
    rows.look()


def _caught_up(run: Endurance, rows: Rows, written: Callable[[], int], rate: int, name: str) -> float:
    """How long it takes until rows come again and hardly anything is on its way; rate 0: nothing at all."""
    began_s, before = time.monotonic(), rows.count
    heals_s = began_s + HEALS_AFTER_S
    while (rate and rows.count == before) or written() - rows.count > rate * CAUGHT_UP_S:
        if time.monotonic() - began_s > DEADLINE_S:
            raise Violated(f"after {name}: {written():,} left records, {rows.count:,} rows\n{run.job.logged()}")
        if time.monotonic() > heals_s:
            run.heal()
            heals_s = math.inf
        _look(run, rows, name)
        time.sleep(0.2)
    return time.monotonic() - began_s


def grown(counted: list[tuple[str, Mapping[str, int]]]) -> list[str]:
    """What was larger in the last quarter than in the one before, after the same faults.

    A killed broker or worker leaves more files for a while than one that was paused.
    """
    quarter = len(counted) // 4
    if not quarter:
        return []
    before, last = _by_fault(counted[-2 * quarter : -quarter]), _by_fault(counted[-quarter:])
    both = before.keys() & last.keys()
    found = []
    for what in counted[0][1] if both else ():
        was, now = (mean(median(counts[what] for counts in faults[name]) for name in both) for faults in (before, last))
        if now > GROWTH * was and now > was + 2:
            found.append(f"{what} have grown: {was:,.0f}, then {now:,.0f}")
    return found


def _by_fault(counted: list[tuple[str, Mapping[str, int]]]) -> dict[str, list[Mapping[str, int]]]:
    faults: dict[str, list[Mapping[str, int]]] = {}
    for name, counts in counted:
        faults.setdefault(name, []).append(counts)
    return faults


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=100)
    parser.add_argument("--rate", type=int, default=5_000, help="records per second, left and right together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="teacup-endurance-") as folder, Broker() as broker:
        found = endure(asked.minutes, asked.rate, asked.seed, Path(folder), broker)
    for one in found:
        print(f"NOT STEADY  {one}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(_main())
