"""Keys of 100 KB, and rows that almost fill the 1 MB that a broker takes."""

from __future__ import annotations

import json

import pytest

from teacup.base.errors import ExitCode
from tests.deploy.jobs.filling import START_MS
from tests.support.jobprocess import records
from tests.support.sparkjoin import Put, produce

KEY_BYTES = 100_000
VALUE_BYTES = 270_000
PAIRS = 12
BROKERS_LIMIT = 1_048_588


@pytest.mark.slow
def test_rows_of_a_megabyte_with_keys_of_a_hundred_kilobytes(kafka, job, here):
    """The key is in the row four times. Each pair is there once, whole; a left record without its right one, too."""
    keys = [b"%06d" % number + b"k" * (KEY_BYTES - 6) for number in range(PAIRS)]
    content = job(1, join={"before": "1s", "after": "0s"})
    for side, some, letter in (("right", keys[:-1], b"r"), ("left", keys, b"l")):
        puts = [Put(0, key, START_MS + n, b'"%s"' % (letter * VALUE_BYTES)) for n, key in enumerate(some)]
        produce({**kafka, "message.max.bytes": "1000000"}, content[side]["topic"], puts)

    code = here.run(content).code

    assert code == ExitCode.DONE
    out = records(kafka, content["output"]["topic"])
    envelopes = [json.loads(row["value"]) for row in out]
    assert [row["key"] for row in out] == keys
    assert [envelope["outcome"] for envelope in envelopes] == ["matched"] * (PAIRS - 1) + ["unmatched"]
    assert all("r" * VALUE_BYTES in envelope["right"]["value"] for envelope in envelopes[:-1])
    assert max(len(row["value"]) + len(row["key"]) for row in out) > 0.9 * BROKERS_LIMIT
