"""Says before the start what a join that reads to the end and stops (`trigger: available_now`) will wait for. Pure."""

from __future__ import annotations

from datadelay.watermark import Idle
from deploy.jobfile.job import CommonJob, JoinJob
from teacup.base.times import written


def what_a_run_waits_for(job: CommonJob) -> str | None:
    """Says how long a run lasts at least or, for complete topics, what must not come after it; None if neither."""
    if not isinstance(job, JoinJob) or job.spec.right.source.is_stored or job.trigger_ms is not None:
        return None
    spec, right = job.spec, job.spec.right
    if spec.complete:
        return (
            "complete: a run waits for no clock. What comes to either topic after it has begun counts as late unless "
            f"it is newer than all that was read by {written(right.before_ms + right.after_ms)} (before and after): it "
            "is flagged and counted, and its row may lack the match"
        )
    if spec.idle is not Idle.ADVANCE:
        return None
    whole, after, delay = map(
        written, (right.after_ms + spec.producer_delay_ms, right.after_ms, spec.producer_delay_ms)
    )
    return (
        f"trigger: a run ends at the earliest {whole} after the time of the newest left record, by the clock "
        f"(join.after {after}, producer_delay {delay}): until then right records could come. If nothing more comes to "
        "both topics, `complete: true` says so, and a run waits for nothing"
    )
