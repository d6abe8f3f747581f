"""What each batch of a job complains of is said once, with what to do about it."""

from __future__ import annotations

import pytest

from tests.support.jobprocess import JobProcess
from tests.support.sparkjoin import Put, produce

pytestmark = pytest.mark.slow

START_MS = 1_700_000_000_000
BEHIND_MS = 19_000
RECORDS, OF_BATCH = 1_200, 60


def test_a_topic_that_is_out_of_order_in_each_batch_is_one_warning_that_names_the_value_to_set(
    kafka, window_job, tmp_path
):
    """Log and JSON agree, and the end of the run sums it up. Every tenth left record is 19 s behind."""
    content = window_job(1, records_per_batch=OF_BATCH)
    content["left"]["disorder"] = "10s"
    times_ms = [START_MS + i * 100 for i in range(RECORDS)]
    produce(kafka, content["right"]["topic"], [Put(0, b"%d" % i, at_ms, b"") for i, at_ms in enumerate(times_ms)])
    left = [Put(0, b"%d" % i, at_ms - BEHIND_MS * (i % 10 == 9), b"") for i, at_ms in enumerate(times_ms)]
    produce(kafka, content["left"]["topic"], left)

    running = JobProcess(tmp_path, content)

    assert running.ended() == 0, running.logged()
    out_of_order = [line for line in running.lines if line.get("disorder_ms", {}).get("left", 0) > 10_000]
    assert len(out_of_order) > 10
    says = "Raise left.disorder to 20s (and producer_delay, if records are also written that late)"
    said = [line for line in running.logged().splitlines() if says in line]
    assert len(said) == 2, said
    assert "over, last seen at" in said[1]
    assert f"{len(out_of_order)} times since" in said[1]
    (warned,) = [line for line in running.lines if line.get("warnings")]
    assert warned["number"] == out_of_order[0]["number"]
    assert warned["level"] == "warning"
