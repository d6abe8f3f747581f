"""What a job on the shuffled path refuses before Spark starts."""

from __future__ import annotations

import pytest

from deploy.jobfile.job import Deduplicate, JoinJob, Output
from deploy.jobs.join import check_deduplicates
from joins import JoinSpec, Right, Side, SpecError


@pytest.mark.parametrize("path", ["direct", "shuffled"])
def test_a_deduplicator_must_see_every_retry(path: str) -> None:
    spec = JoinSpec(name="j", left=Side(topic="l"), right=Right(topic="r", before_ms=1), path=path)
    output = Output(topic="o", exactly_once=False, deduplicate=Deduplicate())
    job = JoinJob(kind="window-join", spec=spec, output=output, checkpoint="c")

    if path == "direct":
        check_deduplicates(job)
        return
    with pytest.raises(SpecError, match=r"output\.deduplicate: .* use `delivery: exactly-once`"):
        check_deduplicates(job)
