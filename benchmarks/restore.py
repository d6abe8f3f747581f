"""What it takes to restore a bucket's window on a machine that lacks it: from Kafka, and from the copied slices.

    python -m benchmarks.restore [--seconds 60] [--buckets 8]

The shuffled path: from Kafka each bucket reads all partitions, and keeps its share. The window is `seconds` long, at
8,000 right and 10,000 left records a second; copies end 10 s before it does, as they are written every 10 s, and what
follows is read from Kafka. They are on this machine's disk: a network takes as long as its rate says (bytes are
printed). Both restored windows must hold the same records, with the same marks.

copy    what copying costs a bucket, in the background: seconds of one core for each second of the stream
restore the first bucket, on one core and alone; all buckets of a machine that was lost take `buckets` times as long
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.commandline import broker_and_folder, machine
from benchmarks.workload import AFTER_MS, BEGIN_MS, DISORDER_MS, LEFT, LEFT_PER_S, Work, make
from joins.batch.facts import Bound
from joins.batch.rules import earliest_right
from joins.batch.state import Bucket, PartitionRange
from joins.batch.ticket import Ticket
from joins.plan.reader import open_log
from joins.read.deserialize import SideReader
from joins.spec import JoinPath, JoinSpec, Right, Side
from joins.window.backup import CheckpointedStore
from joins.window.bolt import needed
from joins.window.covering import EVERY_MS
from joins.window.restore import CachedWindow, SliceStore, restore
from joins.window.slice_files import FileStore

GENERATION = "0" * 32


def spec_of(work: Work, before_ms: int, buckets: int) -> JoinSpec:
    return JoinSpec(
        name="restore",
        left=Side(topic=work.left_topic, disorder_ms=DISORDER_MS),
        right=Right(topic=work.right_topic, disorder_ms=DISORDER_MS, before_ms=before_ms, after_ms=AFTER_MS),
        path=JoinPath.SHUFFLED,
        buckets=buckets,
        kafka=work.kafka,
    )


def ticket_at(spec: JoinSpec, end_ms: int) -> Ticket:
    """Returns the first bucket's ticket: both sides are read up to this time, and left is as far as that."""
    expiry_ms = earliest_right(spec.right, end_ms)
    spacing_ms = spec.right.before_ms // 4  # as a batch plan keeps its bounds
    times = [*range(BEGIN_MS, end_ms, spacing_ms), end_ms]
    sides: dict[str, dict[int, PartitionRange]] = {}
    for side in ("left", "right"):
        with closing(open_log(spec, spec.side(side))) as log:
            partitions = range(log.partition_count())
            ends = {p: end.high for p, end in log.ends().items()}
            estimates = [log.estimate(dict.fromkeys(partitions, ms)) for ms in times]
            offsets = [{p: min(offset, ends[p]) for p, offset in estimate.items()} for estimate in estimates]
        sides[side] = {
            p: PartitionRange(
                *(offsets[-1][p], offsets[-1][p]),
                bounds=(Bound(0), *(Bound(at[p], ms + DISORDER_MS) for at, ms in zip(offsets, times, strict=True))),
            )
            for p in offsets[0]
        }
    bucket = Bucket(0, sides["left"], sides["right"], watermark_ms=end_ms, expiry_ms=expiry_ms)
    return Ticket(GENERATION, 1, spec.buckets or 1, end_ms, 0, 1 << 62, None, bucket, spec.buckets, 0)


def content(kept: CachedWindow) -> tuple[int, int, int]:
    """Returns how many records and marks, and the sum of the offsets of both."""
    offsets = [piece.offsets[piece.times >= kept.window.expired_ms] for piece in kept.window.slices]
    marked = kept.window.marked()
    total = sum(int(numbers.sum()) for numbers in (*offsets, *marked.values()))
    return sum(map(len, offsets)), sum(map(len, marked.values())), total


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restore", description="Kafka or copied slices.")
    parser.add_argument("--seconds", type=int, default=60, help="how long the window is")
    parser.add_argument("--buckets", type=int, nargs="+", default=[4, 8])
    asked = parser.parse_args()
    print(machine())
    scale = (2 * asked.seconds + 2) * LEFT_PER_S / LEFT
    with broker_and_folder() as (broker, folder):
        work = make(broker.bootstrap, scale)
        for buckets in asked.buckets:
            _compare(spec_of(work, asked.seconds * 1_000, buckets), work.end_ms, folder / str(buckets))


def _compare(spec: JoinSpec, end_ms: int, folder: Path) -> None:
    readers = {side: SideReader(spec.side(side), spec.kafka, spec.registry) for side in ("left", "right")}

    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return readers[side].read(partition, start, end)

    def restored(store: SliceStore) -> tuple[float, tuple[int, int, int]]:
        began_s = time.monotonic()
        kept, _ = restore(spec, ticket, None, store, read)
        return time.monotonic() - began_s, content(kept)

    def files(machine: str) -> FileStore:
        return FileStore(folder / machine / f"restore-{GENERATION}" / f"0-of-{spec.buckets}")

    def at_once(_: Path, work: Any) -> None:
        work()

    ticket, before, copies = ticket_at(spec, end_ms), ticket_at(spec, end_ms - EVERY_MS), str(folder / "copies")
    restore(spec, before, None, files("first"), read)
    began_s = time.monotonic()
    copying = CheckpointedStore(files("first"), copies, at_once)
    copying.copy(before.listed_ms, before.bucket.expiry_ms, *needed(spec, before.bucket))
    copy_s = time.monotonic() - began_s
    size = sum(path.stat().st_size for path in Path(copies).rglob("*") if path.is_file())
    from_kafka_s, wanted = restored(files("second"))
    from_copies_s, found = restored(CheckpointedStore(files("third"), copies))
    if found != wanted:
        raise SystemExit(f"the windows differ: {found} and {wanted}")
    stream_s = (spec.right.before_ms - EVERY_MS) / 1_000
    print(
        f"window of {spec.right.before_ms / 1_000:g} s, bucket 1 of {spec.buckets}: "
        f"{found[0]:,} records, {found[1]:,} marked"
        f"\n  copies: {size / 1e6:.1f} MB, {copy_s / stream_s * 1_000:.2f} ms per second of the stream"
        f"\n  restored from Kafka in {from_kafka_s:.2f} s, from copies in {from_copies_s:.2f} s: "
        f"{from_kafka_s / from_copies_s:.1f} times as fast"
    )


if __name__ == "__main__":
    _main()
