"""The peak memory of a task: large records compared with normal ones.

    python -m benchmarks.memory [--scale 0.5]

    normal   200,000 left records times as many right ones, of 150 bytes
    large    4,000 left records of 20 bytes times one right record of 100 KB: 530 MB of output from 100 KB of input

A child process fetches both topics from a real broker, joins them and delivers the rows exactly once. Its peak resident
memory is the kernel's (`VmHWM`), less what it used after it had delivered a few rows. The promise is that a task's
memory is bounded in bytes, whatever the records: the two cases differ by less than `PROMISED`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.workload import create_topics, keys, values
from deploy.broker.broker import Broker
from deploy.jobfile.job import Output
from deploy.output.stage import deliver_stage
from joins.items import Begin, End, Item, Rows
from joins.read.summary import BucketSummary
from joins.rows.frames import RECORD
from joins.spec import JoinSpec, Right, Side
from joins.window.slices import Slice
from joins.window.window import Window
from teacup.base.times import EARLIEST_MS
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter

TIME_MS = 1_700_000_000_000
PROMISED = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    left: int
    right: int
    right_bytes: int


def cases(scale: float) -> list[Case]:
    many = int(200_000 * scale)
    return [Case("normal", many, many, 150), Case("large", int(4_000 * scale), 1, 100_000)]


def fill(kafka: dict[str, str], case: Case, left: str, right: str) -> None:
    """Fills both topics; each left record has the right record of its number, or the last one."""
    import numpy as np

    ids = np.arange(max(case.left, case.right), dtype=np.uint64)
    all_keys = keys(ids)
    of_right = values(ids[: case.right], "impression") if case.right > 1 else [b"x" * case.right_bytes]
    of_left = [b"l" * 20] * case.left if case.right == 1 else values(ids[: case.left], "click")
    left_keys = [all_keys[min(i, case.right - 1)] for i in range(case.left)]
    writer = TopicWriter(kafka)
    writer.write(right, all_keys[: case.right], of_right, timestamps=[TIME_MS] * case.right)
    writer.write(left, left_keys, of_left, timestamps=[TIME_MS] * case.left)
    writer.flush()


def joined(kafka: dict[str, str], spec: JoinSpec, left: int, right: int, number: int) -> Iterator[Item[BucketSummary]]:
    """Yields what the join's stage yields for one ticket, on a window with all of right."""
    window, name = Window(spec.right), RECORD.names()
    taken = [
        pl.DataFrame(pl.from_arrow(batch)).rename({"timestamp": "time"}).select(name).cast(RECORD)
        for batch in RangeReader(spec.right.topic, kafka).read(0, 0, right)
    ]
    window.add(Slice.build(pl.concat(taken, rechunk=True), {0: (0, right)}))
    yield Begin(0, number, "bench", "")
    for batch in RangeReader(spec.left.topic, kafka).read(0, 0, left):
        records = pl.DataFrame(pl.from_arrow(batch)).rename({"timestamp": "time"}).select(name).cast(RECORD)
        for rows in window.join(records, late=False, expiry_ms=EARLIEST_MS):
            yield Rows(rows)
    yield End(BucketSummary(0, number, 1, read={"left": left}, rows={"matched": left}))


def peak_bytes() -> int:
    """This process's peak; `ru_maxrss` would start from its parent's."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def child(bootstrap: str, case: Case, left: str, right: str, out: str) -> None:
    """Delivers a few rows, then all; prints by how much the peak rose, and what was delivered."""
    kafka = {"bootstrap.servers": bootstrap}
    spec = JoinSpec(name=out, left=Side(topic=left), right=Right(topic=right, before_ms=1_000, after_ms=0), kafka=kafka)
    deliver = deliver_stage(spec, Output(topic=out))
    few = min(case.right, 10)
    list(deliver(joined(kafka, spec, 10, few, 1)))
    before = peak_bytes()
    (done,) = deliver(joined(kafka, spec, case.left, case.right, 2))
    print(json.dumps({"grown": peak_bytes() - before, "sent": done.sent[out]}))


def measured(bootstrap: str, case: Case) -> int:
    left, right, out = (f"{case.name}-{side}-{uuid.uuid4().hex[:6]}" for side in ("left", "right", "out"))
    create_topics(bootstrap, (left, right, out), partitions=1)
    fill({"bootstrap.servers": bootstrap}, case, left, right)
    about_case = json.dumps([case.name, case.left, case.right, case.right_bytes])
    command = [sys.executable, "-m", "benchmarks.memory", "--child", about_case, bootstrap, left, right, out]
    summary = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    assert summary["sent"] == case.left, summary
    return int(summary["grown"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--child", nargs=5, metavar=("CASE", "BOOTSTRAP", "LEFT", "RIGHT", "OUT"))
    arguments = parser.parse_args()
    if arguments.child:
        case, *where = arguments.child
        bootstrap, left, right, out = where
        child(bootstrap, Case(*json.loads(case)), left, right, out)
        return 0
    with Broker() as broker:
        grown = {case.name: measured(broker.bootstrap, case) for case in cases(arguments.scale)}
    for name, size in grown.items():
        print(f"{name:8} {size / 1e6:8,.0f} MB")
    ratio = grown["large"] / grown["normal"]
    print(f"large over normal: {ratio:.2f} (promised: below {PROMISED:g})")
    return 0 if ratio < PROMISED else 1


if __name__ == "__main__":
    raise SystemExit(main())
