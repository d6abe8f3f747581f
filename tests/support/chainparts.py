"""Collector, feeder and lookup join, each as a process of its own whose clock may step: without Spark, batch by batch.

    python -m tests.support.chainparts FOLDER

`begun` starts one; what it has to do is a pickle in its folder, its log is `log` there, and the join's rows are `rows`.
"""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datadelay.collector.config import CollectorConfig
from datadelay.collector.run import run as collect
from joins.driven import DrivenJoin
from joins.errors import StoreUnreachable
from joins.items import Rows
from joins.lookup.feed.source import FeedReader
from joins.lookup.feed.spec import FeedSpec
from joins.lookup.feed.stage import FeedSummary
from joins.plan.reader import JoinControl
from joins.spec import JoinSpec
from teacup.base.process import use_arrow_without_pandas
from teacup.spark.jvm_errors import summaries_in
from teacup.spark.stream_reader import ReaderControl
from tests.support.feeding import commit
from tests.support.leftovers import kill_session_with_us

PAUSE_S = 0.2
NAMES = ("left_offset", "right_offset", "outcome", "reason")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Collecting:
    """A collector that runs all the time; each run is one of cron's."""

    settings: Mapping[str, Any]

    def live(self, folder: Path) -> None:
        config = CollectorConfig.model_validate(self.settings)
        while True:
            collect(config)
            time.sleep(PAUSE_S)


@dataclass(frozen=True)
class FeedingOn:
    """A feeder. A batch that fails is carried out again, as by Spark and by who supervises the job."""

    spec: FeedSpec
    group: str

    def live(self, folder: Path) -> None:
        reader = FeedReader(self.spec, ReaderControl())
        at: dict[str, Any] = {}
        while True:
            end = json.loads(json.dumps(reader.latest(at)))
            if end == at:
                time.sleep(PAUSE_S)
                commit(self.spec, self.group, at)
                continue
            patiently(partial(_fed, reader, at, end))
            commit(self.spec, self.group, end)
            at = end


def _fed(reader: FeedReader, at: dict[str, Any], end: dict[str, Any]) -> None:
    """Carries out a batch of a feeder. Raises what ends the job."""
    batches = (batch for ticket in reader.tasks(end) for batch in reader.read(ticket))
    summaries_in(((row["summary"], row["failure"]) for batch in batches for row in batch.to_pylist()), FeedSummary)


@dataclass(frozen=True)
class Joining:
    """A lookup join. A batch's rows are written with its end, when it is done; another process goes on from there."""

    spec: JoinSpec

    def live(self, folder: Path) -> None:
        join = DrivenJoin(self.spec, JoinControl(windows=folder / "windows"), folder / "windows")
        at: dict[str, Any] = (_batches_of(folder) or [{"at": {}}])[-1]["at"]
        while True:
            end = join.next_end(at)
            if end == at:
                time.sleep(PAUSE_S)
                continue
            items = patiently(partial(_carried_out, join, at, end))
            rows = [row for item in items if isinstance(item, Rows) for row in item.frame.select(NAMES).rows()]
            with (folder / "rows").open("a") as file:
                file.write(json.dumps({"rows": rows, "at": end}) + "\n")
            at = end


def _carried_out(join: DrivenJoin, at: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    return list(join.carry_out(at, end))


Part = Collecting | FeedingOn | Joining


def patiently(carry_out: Any) -> Any:
    """Carries a batch out until it succeeds, whatever the store does."""
    while True:
        try:
            return carry_out()
        except StoreUnreachable as error:
            logging.warning("a batch failed: %s", error)
            time.sleep(PAUSE_S)


def rows_of(folder: Path) -> list[Row]:
    """Of a join, as far as it is."""
    return [tuple(row) for batch in _batches_of(folder) for row in batch["rows"]]


def _batches_of(folder: Path) -> list[dict[str, Any]]:
    file = folder / "rows"
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


@contextmanager
def begun(part: Part, folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the part, for the first time or again; kills it in the end."""
    folder.mkdir(exist_ok=True)
    (folder / "part").write_bytes(pickle.dumps(part))
    with (folder / "log").open("ab") as log:
        command = [sys.executable, "-m", "tests.support.chainparts", str(folder)]
        process = subprocess.Popen(command, env=dict(environment), stdout=log, stderr=log, start_new_session=True)
    kill_session_with_us(process.pid)
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
    use_arrow_without_pandas()
    from tests.support import chainparts  # the classes have this module's name, not __main__

    told: chainparts.Part = pickle.loads((Path(sys.argv[1]) / "part").read_bytes())
    told.live(Path(sys.argv[1]))
