"""A job over topics that nothing more comes to: no clock is waited for."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.support.sparkjoin import Put, produce


@pytest.mark.parametrize("path", ["direct", "shuffled"])
def test_records_of_this_moment_are_joined_at_once(kafka, window_job, here, topic_factory, path):
    """With an interval of an hour after each; right records in no row are unjoined. Another run finds nothing to do."""
    unjoined = topic_factory(2, prefix="unjoined")
    content = window_job(2, join={"before": "1h", "after": "1h", "path": path}, complete=True)
    content["topics"] = {"unjoined": unjoined}
    now_ms = wall_ms()
    produce(kafka, content["left"]["topic"], [Put(i % 2, b"k%d" % i, now_ms + i) for i in range(20)])
    produce(kafka, content["right"]["topic"], [Put(i % 2, b"k%d" % i, now_ms + i) for i in range(10, 30)])
    began_s = time.monotonic()

    runs = [here.run(content) for _ in range(2)]

    assert [run.code for run in runs] == [ExitCode.DONE] * 2
    rows = sum((Counter(line["rows"]) for run in runs for line in run.lines), Counter())
    assert rows == {"matched": 10, "unmatched": 10, "unjoined": 10}
    assert time.monotonic() - began_s < 3_600 / 4
