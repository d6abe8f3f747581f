"""What the facts mean for a job: `ok`, `warning`, `error`.

An error is what stops the job, at its start or as soon as a record needs it. A warning is what may give other rows than
expected, or stop it later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from configfile.durations import written
from datadelay.errors import DelayError
from datadelay.progress import Idle
from dedup.errors import DedupError
from deploy.check.observed import PlaceFacts, SideFacts, TopicFacts
from joins.admission.guard import LONGEST_DOWNTIME_MS, not_direct, refuse_compaction
from joins.admission.keysample import Sample, common_keys, nothing_in_common
from joins.admission.passage import lags_of
from joins.errors import DataLoss, JoinError
from joins.spec import JoinPath, JoinSpec, Side
from kafkaio.errors import KafkaIOError
from kafkaio.exitcode import ExitCode
from kafkaio.times import iso
from storage.errors import StorageError

SECONDS_NOT_MS = 100_000_000_000
"""Times below it are in 1973 or before: probably seconds."""
LONG_AGO_MS = 24 * 3_600_000
LITTLE_SPACE = 1 << 30


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. what: of the job file; code: how the command ends, for an error."""

    level: Level
    what: str
    text: str
    code: ExitCode = ExitCode.DONE


def ok(what: str, text: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, what, text)


def warning(what: str, text: str) -> Finding:
    """The job runs, perhaps not as expected."""
    return Finding(Level.WARNING, what, text)


def error(what: str, text: str, code: ExitCode = ExitCode.FAILED) -> Finding:
    """The job does not run, or not for long."""
    return Finding(Level.ERROR, what, text, code)


def from_error(what: str, raised: KafkaIOError | JoinError | DedupError | StorageError | DelayError) -> Finding:
    """What one of our errors says."""
    return error(what, str(raised), raised.exit_code)


def exit_code(findings: Sequence[Finding]) -> ExitCode:
    """That of the first error."""
    return next((one.code for one in findings if one.level is Level.ERROR), ExitCode.DONE)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """A table of level, what and text; then how many there are of each level."""
    width = max((len(one.what) for one in findings), default=0)
    for one in findings:
        yield f"{one.level:<7}  {one.what:<{width}}  {one.text}"
    counts = Counter(one.level for one in findings)
    yield ", ".join(f"{level} {counts[level]}" for level in reversed(list(Level)))


def of_topic(one: TopicFacts) -> Iterator[Finding]:
    """Whether it exists, and may be used."""
    if one.problem is not None or one.partitions is None:
        text = one.problem or f"Kafka has no topic {one.topic!r}; check its name, or create it"
        yield error(one.key, text, one.code)
        return
    needed = "write" if one.written else "read"
    if one.allowed is not None and needed not in one.allowed:
        yield error(one.key, f"{one.topic!r}: the user may not {needed} it; give it the ACL {needed.title()}")
        return
    may = "" if one.allowed is None else f", may be {'written' if one.written else 'read'}"
    yield ok(one.key, f"{one.topic!r} has {one.partitions} partitions{may}")


def of_retention(one: TopicFacts, needed_ms: int, why: str, *, must_keep: bool) -> Iterator[Finding]:
    """Whether records live as long as the job needs them.

    needed_ms, why   how long, and for what
    must_keep        compaction is refused (`on_data_loss: stop`)
    """
    what = f"{one.key.removesuffix('.topic')}.retention"
    if one.config is None:
        yield warning(what, f"the configuration of {one.topic!r} may not be looked at; give the ACL DescribeConfigs")
        return
    try:
        refuse_compaction(one.topic, one.config, needed_ms + LONGEST_DOWNTIME_MS, "the job", f"{why} and a day")
    except DataLoss as refused:
        yield from_error(what, refused) if must_keep else warning(what, str(refused))
        return
    if "delete" not in one.config.get("cleanup.policy", "delete"):
        yield ok(what, f"{one.topic!r} is compacted late enough")
        return
    by_age_ms, by_size = int(one.config.get("retention.ms", "-1")), int(one.config.get("retention.bytes", "-1"))
    needed, age = written(needed_ms), f"{written(max(by_age_ms, 0))} (retention.ms={by_age_ms})"
    if by_size >= 0:
        yield warning(
            what,
            f"{one.topic!r} also deletes by size (retention.bytes={by_size} per partition), whatever is still needed: "
            f"records must stay for {needed} ({why}), and for the longest downtime",
        )
    if 0 <= by_age_ms < needed_ms:
        yield error(
            what,
            f"{one.topic!r} deletes after {age}, and {needed} is needed ({why}): lengthen it",
            ExitCode.DATA_LOSS,
        )
    elif 0 <= by_age_ms < needed_ms + LONGEST_DOWNTIME_MS:
        yield warning(
            what,
            f"{one.topic!r} deletes after {age}: beyond the {needed} that is needed ({why}) "
            "that allows less than a day of downtime",
        )
    elif by_size < 0:
        kept = "for ever" if by_age_ms < 0 else f"for {written(by_age_ms)}"
        yield ok(what, f"{one.topic!r} keeps records {kept}; {needed} is needed ({why})")


def of_times(side: Side, one: SideFacts, idle: Idle | None) -> Iterator[Finding]:
    """The event times of a sample. idle: of the join; None: it does not matter."""
    what, sample = f"{one.name}.time", one.sample
    if not sample.records:
        yield warning(what, f"{side.topic!r} has no records yet: keys and times were not looked at")
        return
    for fault, count in sample.faults.items():
        yield warning(f"{one.name}.format", f"{count} of {sample.records} sampled records are {fault}: dead letters")
    times = sample.valid_times
    if not times:
        keys = f"`time`, `time_unit` ({side.time_unit})" if side.payload_time else "`time`"
        yield error(
            what,
            f"none of {sample.records} sampled records of {side.topic!r} has a valid time at {side.time!r}: each would "
            f"be a dead letter; correct {keys}, or the clock if they are from the future",
            ExitCode.REFUSED,
        )
        return
    found = f"{iso(times[0])} to {iso(times[-1])}"
    if len(times) < sample.records:
        count = sample.records - len(times)
        yield warning(
            what, f"{count} of {sample.records} sampled records have no valid time (others: {found}): dead letters"
        )
    usual_ms = times[len(times) // 2]
    if 0 < usual_ms < SECONDS_NOT_MS:
        yield warning(what, f"times lie around {iso(usual_ms)}: if they are seconds, set `time_unit: s`")
    elif idle is Idle.ADVANCE and times[-1] < one.now_ms - LONG_AGO_MS:
        yield warning(
            what,
            f"the newest sampled record is of {iso(times[-1])}, more than a day ago: if old times are being replayed, "
            "set `idle: hold`",
        )
    elif len(times) == sample.records:
        yield ok(what, f"{len(times)} sampled records, {found}")


def of_disorder(side: Side, one: SideFacts) -> Iterator[Finding]:
    """How far out of order the sample is."""
    seen = disorder_of(one.sample)
    if seen is None:
        return
    what = f"{one.name}.disorder"
    if seen > side.disorder_ms:
        yield warning(
            what,
            f"the sample is out of order by {written(seen)}, and {written(side.disorder_ms)} is configured: such "
            f"records can be late; set {what} higher",
        )
    else:
        yield ok(what, f"{written(seen)} in the sample, {written(side.disorder_ms)} is configured")


def disorder_of(sample: Sample) -> int | None:
    """The most that a valid time lies below an earlier one of its partition; None without any."""
    lags = []
    for times in sample.times.values():
        valid = np.array([at for at in times if at is not None], np.int64)
        if len(valid):
            lags.append(int(lags_of(valid, None)[0].max()))
    return max(lags, default=None)


def of_keys(spec: JoinSpec, left: Sample, right: Sample) -> Iterator[Finding]:
    """Whether both sides have keys in common."""
    if (why := nothing_in_common(spec, left, right)) is not None:
        yield warning("keys", why)
    elif left.distinct_keys and right.distinct_keys:
        common = common_keys(left, right)
        of = f"of {len(left.distinct_keys)} sampled keys of left and {len(right.distinct_keys)} of right"
        doubt = "" if common else "; the samples are too small to tell whether any will match"
        yield ok("keys", f"{common} {of} are common ({right.share:.0%} of right's records of that time){doubt}")


def of_partitions(spec: JoinSpec, partitions: int, why_not_direct: str | None) -> Finding:
    """Which path a new checkpoint takes. partitions: of left."""
    if why_not_direct is None:
        return ok("partitions", f"{partitions} on both sides, and the sampled keys fit")
    if spec.path is JoinPath.DIRECT:
        return from_error("partitions", not_direct(spec, why_not_direct))
    return ok("partitions", f"{why_not_direct}: the join goes through Spark's shuffle")


def of_place(one: PlaceFacts) -> Finding:
    """Whether a checkpoint or a folder can be used."""
    if one.problem is not None:
        return error(one.key, one.problem, one.code)
    content = f" {one.content}" if one.content else ""
    if one.free_bytes is None:
        return ok(one.key, f"{one.location}{content}")
    free = f"{one.free_bytes / 1e9:,.1f} GB free"
    if one.free_bytes < LITTLE_SPACE:
        return warning(one.key, f"{one.location}{content}: only {free}")
    return ok(one.key, f"{one.location}{content}, {free}")
