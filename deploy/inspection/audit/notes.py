"""What an audit has not checked, or only in part, and why: a line each, for people."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.inspection.audit.earlier import Earlier
from deploy.inspection.audit.plan_history import PlanHistory
from deploy.inspection.audit.scan import Plan, Tables
from deploy.inspection.audit.verify.compare import Verification
from deploy.inspection.audit.verify.scope import VersionsKnown
from deploy.jobfile.job import JoinJob
from teacup.base.times import iso
from teacup.kafka.headers import NO_LONGER_STORED


def notes_of(
    job: JoinJob,
    history: PlanHistory,
    plan: Plan,
    earlier: Earlier,
    verdicts: Verification,
    left_out: int,
    tables: Tables,
    rewritten: int,
    known: VersionsKnown | None,
) -> Iterator[str]:
    """Yields the lines about a join.

    left_out    runs of single records that were not read
    rewritten   rows that were written again later
    """
    spec = job.spec
    if job.output.select is not None:
        yield "output.select: keys, values and reasons of rows were not compared, only positions"
    written = (plan.output, *plan.copies.values())
    for topic in (plan.left, plan.right, *written):
        if topic.complete or (known is not None and topic is plan.right):
            continue
        unsaid = "; what is missing there was not looked for" if topic in written else ""
        if topic.cut:
            yield f"{topic.name}: retention has deleted records in or before the range; use a later --from{unsaid}"
        else:
            yield f"{topic.name} is compacted: any of its records may be gone{unsaid}"
    if tables.of_others:
        yield f"{tables.of_others:,} rows and copies of another job were left out"
    if tables.of_later:
        yield (
            f"{tables.of_later:,} rows and copies are of the first batch since `teacup rewind`, which was not "
            "completed: they were left out, and the next start completes it"
        )
    if verdicts.unread:
        yield f"{verdicts.unread:,} rows name right records that are gone, or were not read: not compared by value"
    if verdicts.elsewhere:
        yield (
            f"{verdicts.elsewhere:,} unmatched left records have a right record of their key in another partition: on "
            "the direct path partition n of left meets partition n of right only. Let both topics be written by the "
            "same partitioner, or take `join.path: shuffled`"
        )
    if verdicts.timeless:
        yield (
            f"{verdicts.timeless:,} records without a time lie between those of the range in their partitions, and "
            "were counted with them"
        )
    if left_out:
        yield f"{left_out:,} more groups of scattered records were not read"
    if verdicts.allowed:
        yield (
            f"the checkpoint has the plans of the last {history.batches} batches. What earlier batches could see is "
            "not known: their late records, those that max_wait let go, and those with a late right record in reach "
            "were checked against every possible result"
        )
    if earlier.unlike:
        how = f"left records from before `{earlier.command}` were read differently ({', '.join(earlier.unlike)})"
        yield f"{how}: they were left out"
    elif earlier.command is not None:
        how = f"left records from before `{earlier.command}`{' and rows that it kept' if earlier.rewound else ''}"
        yield f"{how} may have been joined by another job file: only their keys were compared"
    if rewritten:
        yield f"{rewritten:,} rows were written again by `teacup rewind`: the later ones were compared"
    if spec.right.source.is_stored:
        gone = "or had expired there, " if known is None else ""
        yield f"the store was not asked what it had: right records that may be late, {gone}count as allowed"
        if job.output.unjoined is not None:
            yield "missing unjoined records are left to `teacup unjoined`"
    if verdicts.repeated:
        yield f"{verdicts.repeated:,} rows are repeated, as at-least-once output allows"


def notes_of_versions(job: JoinJob, known: VersionsKnown, verdicts: Verification) -> Iterator[str]:
    """Yields the lines about a table that changes."""
    right = job.spec.right
    if known.problem is not None:
        yield f"since when the store keeps versions is not known, any may be gone there: {known.problem}"
    why = {
        "compacted": f"compaction may have removed versions from before {iso(known.whole_from_ms)} from {right.topic}; "
        "raise its min.compaction.lag.ms, or audit sooner",
        "cut": f"{right.topic} has lost its beginning, and has no version of their keys at or before their time",
        NO_LONGER_STORED: f"their rows say that their version is no longer stored, and the store keeps versions from "
        f"{iso(known.stored_from_ms)} on, of a key at most {known.bound:,}",
    }
    for reason, count in sorted(verdicts.untold.items()):
        yield f"{count:,} left records cannot be verified: {why[reason]}"
