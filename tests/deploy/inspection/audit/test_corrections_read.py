"""What is read for corrections, on a real broker: everything that has times of the range, however late it came."""

from __future__ import annotations

import pytest

from deploy.inspection.audit.plan_history import PlanHistory
from deploy.inspection.audit.scan import plan
from deploy.jobfile.load import load_job
from teacup.base.now import wall_ms
from tests.deploy.inspection.audit.auditing import written
from tests.support.sparkjoin import Put, produce

NOW = wall_ms() - 3_600_000


@pytest.mark.parametrize("where", ["kafka", "$.t"])
def test_records_that_came_before_many_late_ones_are_read(kafka, window_job, topic_factory, tmp_path, where):
    """A search by blocks lands among the late ones, and takes the time for later: the index has no such gap."""
    content = window_job(1)
    content["right"] |= {"time": where, "format": "json"}
    seconds = [*range(60), *[20] * 300, *range(60, 70)]
    stamped = seconds if where == "kafka" else [*range(60), *[60] * 300, *range(60, 70)]  # when it was written
    right = [
        Put(0, b"k", NOW + 1_000 * stamp, b'{"t": %d}' % (NOW + 1_000 * at))
        for stamp, at in zip(stamped, seconds, strict=True)
    ]
    produce(kafka, content["right"]["topic"], right)
    job, corrections = load_job(written(tmp_path, content)), topic_factory(1, prefix="corrections")

    def begins(at):
        """Where right is read from for left from that second on."""
        from_ms = NOW + 1_000 * at + job.spec.right.before_ms + job.spec.max_future_skew_ms
        found = plan(job, PlanHistory(), from_ms, from_ms + 1_000, wall_ms(), corrections)
        assert found.right.spans[0][1] == len(right)
        return found.right.spans[0][0]

    assert all(begins(at) <= at for at in (0, 30, 50, 59))
    assert begins(65) > 300
