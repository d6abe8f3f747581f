"""What tests of the batch plan share: a simulated join, and what its batches have read."""

from __future__ import annotations

import json
from dataclasses import replace

from joins.testing.history import History
from joins.testing.simulation import Simulation
from tests.support.making import topic

DAY_MS = 86_400_000
SIDES = ("left", "right")


def simulation(spec, left, right, start_ms):
    return Simulation(History(topic("left", *left), topic("right", *right), start_ms), spec)


def batches(run, rounds=500):
    """Plan without moving the clock until nothing more may be read: for each batch how many records went, and how many
    were read, including those held back."""
    sizes = []
    for _ in range(rounds):
        if not run.admit():
            return sizes
        after = run.between().buckets
        ranges = [(n, s, p, r) for n, b in run.state.buckets.items() for s in SIDES for p, r in b.side(s).items()]
        went = sum(after[n].side(s)[p].start - r.start for n, s, p, r in ranges)
        sizes.append((went, sum(r.records for *_, r in ranges)))
    raise AssertionError(f"{rounds} batches, and still more: {sizes[-5:]}")


def outcomes(run):
    return [(r.left_partition, r.left_offset, r.outcome, r.reason) for r in run.run.sorted_results()]


def steady(records, first_ms=1_000, every_ms=1, key=b"a"):
    return [(first_ms + i * every_ms, key) for i in range(records)]


def with_payload(one):
    """The same topic with its times also in the values."""
    parts = tuple(
        tuple(replace(e, value=json.dumps({"t": e.time_ms}).encode()) for e in events) for events in one.partitions
    )
    return replace(one, partitions=parts)
