"""Records of both sides of a lookup join that runs as a process, and the rows that it has to give."""

from __future__ import annotations

import json

from joins import JoinSpec, Right, Side
from joins.testing import oracle
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, history

BEFORE_MS, AFTER_MS, DISORDER_MS = 5_000, 1_000, 200
DEADLINE_S = 480.0


def events(start_ms, count):
    """Repeated keys, null keys, right records of which some come out of order, some missing, on two partitions."""
    left = [
        Put(i % 2, None if i % 29 == 0 else b"%d" % (i % 300), start_ms + 10 * i, b'{"n": %d}' % i)
        for i in range(count)
    ]
    right = [
        Put(i % 2, b"%d" % (i % 410), start_ms + 10 * i + (DISORDER_MS if i % 7 == 0 else 0), b'{"r": %d}' % i)
        for i in range(count)
        if i % 5
    ]
    return left, right


def expected_of(plan, left, right):
    """By left's position: outcome, reason, and the value of right."""
    spec = JoinSpec(
        name="expected",
        left=Side(topic=plan.left, disorder_ms=DISORDER_MS),
        right=Right(topic=plan.right, disorder_ms=DISORDER_MS, before_ms=BEFORE_MS, after_ms=AFTER_MS),
    )
    values = {}
    for p in (0, 1):
        values |= {(p, offset): put.value for offset, put in enumerate(put for put in right if put.partition == p)}
    return {
        (row.left_partition, row.left_offset): (
            row.outcome,
            row.reason,
            None if row.right is None else json.loads(values[row.right]),
        )
        for row in oracle.join(history(spec, left, right), spec)
    }


def joined_of(plan):
    """Every row that a `read_committed` reader finds: left's position, and the rest as in `expected_of`."""
    found = []
    for record in records(plan.kafka, plan.joined):
        row = json.loads(record["value"])
        at = row["left"]["position"]
        right = None if row["right"] is None else row["right"]["value"]
        found.append(((at["partition"], at["offset"]), (row["outcome"], row["reason"], right)))
    return found
