"""Fetching to Arrow alone, with as many processes as the join has workers: the upper limit for anything that reads so.

Each process reads its partitions of both topics in ranges of a batch's size, one after the other, and counts records.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.workload import PARTITIONS, Work
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader

RANGE = 50_000
PROCESSES = 2


def fetch(work: Work, partitions: Sequence[int]) -> list[tuple[float, int]]:
    """Reads these partitions of both topics; returns the time after each range and its number of records."""
    done = []
    readers = [RangeReader(topic, work.kafka) for topic in (work.left_topic, work.right_topic)]
    ends = [
        {p: partition.stable for p, partition in BrokerLog(reader.topic, work.kafka).ends().items()}
        for reader in readers
    ]
    longest = max(end for of_topic in ends for end in of_topic.values())
    for start in range(0, longest, RANGE):
        for p in partitions:
            for reader, of_topic in zip(readers, ends, strict=True):
                end = min(start + RANGE, of_topic[p])
                rows = sum(batch.num_rows for batch in reader.read(p, start, end)) if start < end else 0
                done.append((time.time(), rows))
    for reader in readers:
        reader.close()
    return done


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fetch", description="Fetch both topics to Arrow.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    work = Work.load(asked.work)
    shares = [range(number, PARTITIONS, PROCESSES) for number in range(PROCESSES)]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        found = pool.starmap(fetch, [(work, share) for share in shares])
    total, progress = 0, []
    for at_s, rows in sorted(pair for ranges in found for pair in ranges):
        total += rows
        progress.append((at_s, total))
    asked.out.write_text(json.dumps({"progress": progress}))
    print(f"{total:,} records")


if __name__ == "__main__":
    _main()
