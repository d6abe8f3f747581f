"""Records and rows of a window join that is moved to another checkpoint."""

from __future__ import annotations

import json
from collections import Counter

import yaml

from tests.support.jobprocess import records
from tests.support.provenance import left_of
from tests.support.sparkjoin import Put, produce

START_MS = 1_700_000_000_000


def fill(kafka, job, begin, end):
    """A right record every second; the left ones follow 3 s later, with the same key."""
    for side, after_ms in (("left", 3_000), ("right", 0)):
        puts = [Put(i % 2, b"%d" % i, START_MS + i * 1_000 + after_ms, b"%d" % i) for i in range(begin, end)]
        produce(kafka, job[side]["topic"], puts)


def file_of(folder, job):
    file = folder / "moved.yaml"
    file.write_text(yaml.safe_dump(job))
    return file


def rows(kafka, job):
    """(left position, outcome) of each row."""
    found = records(kafka, job["output"]["topic"])
    return Counter((left_of(record["headers"]), json.loads(record["value"])["outcome"]) for record in found)


def expected(begin, end, outcome):
    return Counter({(f"{i % 2}:{i // 2}", outcome): 1 for i in range(begin, end)})
