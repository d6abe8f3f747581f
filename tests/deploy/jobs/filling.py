"""Records of both sides of a window join."""

from __future__ import annotations

from tests.support.sparkjoin import Put, produce

START_MS = 1_700_000_000_000


def fill(kafka, job, count=200, start=START_MS):
    """Keys 0 to 9; every third right record is missing, so that some left records have no match."""
    left = [Put(i % 2, b"%d" % (i % 10), start + i * 1_000, b'{"n": %d}' % i) for i in range(count)]
    right = [Put(i % 2, b"%d" % (i % 10), start + i * 1_000 + 500, b"r%d" % i) for i in range(count) if i % 3]
    produce(kafka, job["left"]["topic"], left)
    produce(kafka, job["right"]["topic"], right)
    return left, right
