"""What `teacup check --connect` found out about a job, as data, and what it means: `ok`, `warning`, `error`.

    TopicFacts, PlaceFacts, SideFacts    what is known about a topic, a folder, or the sampled records of a topic
    of_topic, of_replicas, of_times ...  turn facts into findings

An error stops the job, at its start or as soon as a record is affected. A warning may lead to other rows than expected,
or stop the job later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from datadelay.errors import DelayError
from datadelay.watermark import Idle
from dedup.errors import DedupError
from joins.errors import DataLoss, JoinError
from joins.plan.log_checks import LONGEST_DOWNTIME_MS, not_direct, refuse_compaction
from joins.plan.start.startup_sample import SECONDS_NOT_MS, Sample, common_keys, nothing_in_common, set_zone, unit_of
from joins.read.range_gate import lags_of
from joins.spec import JoinPath, JoinSpec, Side
from teacup.base.errors import ExitCode
from teacup.base.times import iso, written
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.replicas import Replicas, cannot_take
from teacup.kafka.records.record import OUTLIERS
from teacup.kafka.records.written_times import TimeUnit
from teacup.storage.errors import StorageError

LONG_AGO_MS = 24 * 3_600_000
LITTLE_SPACE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What is known about one topic.

    key         where the job file names it
    partitions  None if it does not exist, or may not be described
    config      None if it may not be described
    allowed     what the job's user may do with it ("read", "describe_configs"); None if the brokers do not say
    needed      what the job does with it, as `kafka-acls` spells it ("Read", "DescribeConfigs")
    problem     why nothing is known, if so
    code        the exit code of that problem
    """

    key: str
    topic: str
    written: bool
    partitions: int | None = None
    config: Mapping[str, str] | None = None
    allowed: frozenset[str] | None = None
    needed: tuple[str, ...] = ()
    problem: str | None = None
    code: ExitCode = ExitCode.BAD_JOB_FILE

    @property
    def missing(self) -> bool:
        """Whether the topic does not exist."""
        return self.problem is not None and self.code is ExitCode.BAD_JOB_FILE

    @property
    def lacks(self) -> tuple[str, ...]:
        """The operations of `needed` that are not allowed."""
        if self.partitions is None:
            return self.needed if self.code is ExitCode.ACCESS else ()
        return () if self.allowed is None else not_in(self.needed, self.allowed)


def not_in(needed: Iterable[str], allowed: Collection[str]) -> tuple[str, ...]:
    """Returns the needed operations, as `kafka-acls` spells them, that are not allowed."""
    plain = {operation.replace("_", "") for operation in allowed}
    return tuple(operation for operation in needed if operation.lower() not in plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """What is known about a folder or URL.

    key         where the job file names it
    problem     why it cannot be used, if so
    code        the exit code of that problem
    free_bytes  free disk space, if known
    content     what is there, for people
    """

    key: str
    location: str
    problem: str | None = None
    code: ExitCode = ExitCode.CHECKPOINT
    free_bytes: int | None = None
    content: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFacts:
    """A topic with event times, and a sample of its records.

    now_ms             the clock when the sample was taken
    has_dead_letters   whether the job has a dead-letter topic
    outliers           n: up to n of 2n + 1 consecutive times may be wrong
    """

    name: str
    sample: Sample
    now_ms: int
    has_dead_letters: bool = True
    outliers: int = OUTLIERS


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `what` is a key of the job file, `code` the exit code of an error."""

    level: Level
    what: str
    text: str
    code: ExitCode = ExitCode.DONE


def ok(what: str, text: str) -> Finding:
    """Returns a finding without a problem."""
    return Finding(Level.OK, what, text)


def warning(what: str, text: str) -> Finding:
    """Returns a finding that the job runs, but perhaps not as expected."""
    return Finding(Level.WARNING, what, text)


def error(what: str, text: str, code: ExitCode = ExitCode.FAILED) -> Finding:
    """Returns a finding that the job does not run, or not for long."""
    return Finding(Level.ERROR, what, text, code)


def from_error(what: str, raised: KafkaIOError | JoinError | DedupError | StorageError | DelayError) -> Finding:
    """Returns one of our errors as a finding."""
    return error(what, str(raised), raised.exit_code)


def exit_code(findings: Sequence[Finding]) -> ExitCode:
    """Returns the exit code of the first error."""
    return next((finding.code for finding in findings if finding.level is Level.ERROR), ExitCode.DONE)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yields a table of level, what and text, and then the number of findings of each level."""
    width = max((len(finding.what) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.level:<7}  {finding.what:<{width}}  {finding.text}"
    yield ", ".join(f"{level} {count}" for level, count in counts(findings).items())


def counts(findings: Sequence[Finding]) -> dict[Level, int]:
    """Returns how many findings there are of each level, errors first."""
    by_level = Counter(finding.level for finding in findings)
    return {level: by_level[level] for level in reversed(list(Level))}


def of_topic(facts: TopicFacts) -> Iterator[Finding]:
    """Says whether a topic exists and may be used."""
    if facts.lacks:
        yield error(facts.key, f"{facts.topic!r}: the user lacks {', '.join(facts.lacks)}", ExitCode.ACCESS)
        return
    if facts.problem is not None or facts.partitions is None:
        text = facts.problem or f"Kafka has no topic {facts.topic!r}; check its name, or create it"
        yield error(facts.key, text, facts.code)
        return
    may = "" if facts.allowed is None else f", may be {'written' if facts.written else 'read'}"
    yield ok(facts.key, f"{facts.topic!r} has {facts.partitions} partitions{may}")


def of_replicas(what: str, topic: str, replicas: Replicas | None, brokers: int) -> Finding:
    """Says whether a topic accepts writes, and still would after the loss of one broker.

    replicas  None: they may not be described
    brokers   the number of brokers
    """
    if replicas is None:
        return ok(what, f"the replicas of {topic!r} may not be looked at; give the ACLs Describe and DescribeConfigs")
    if not replicas.placed:
        text = (
            f"Kafka has no topic {topic!r}, and has not created it: it needs more brokers than the {brokers} there are"
        )
        return error(what, text, ExitCode.UNREACHABLE)
    if (refused := cannot_take([replicas])) is not None:
        return error(what, str(refused), refused.exit_code)
    minimum = "not known (give the ACL DescribeConfigs)" if replicas.minimum is None else str(replicas.minimum)
    text = f"{topic!r} has {replicas.fewest} replicas, min.insync.replicas is {minimum}"
    if brokers > 1 and replicas.fewest == 1:
        return warning(
            what, f"{topic!r} has partitions with a single replica: the loss of its broker stops the job; give it more"
        )
    if brokers > 1 and replicas.minimum is not None and replicas.fewest <= replicas.minimum:
        return warning(what, f"{text}: the loss of one broker stops the job; give it more replicas")
    if not replicas.all_in_sync:
        return warning(what, f"{text}, and not all are in sync now: look at the brokers")
    return ok(what, text)


def of_retention(facts: TopicFacts, needed_ms: int, why: str, *, must_keep: bool) -> Iterator[Finding]:
    """Says whether the topic keeps records for as long as the job needs them.

    needed_ms, why   how long, and for what
    must_keep        whether compaction is an error (`on_data_loss: stop`)
    """
    what = f"{facts.key.removesuffix('.topic')}.retention"
    if facts.config is None:
        yield warning(what, f"the configuration of {facts.topic!r} may not be looked at; give the ACL DescribeConfigs")
        return
    try:
        refuse_compaction(facts.topic, facts.config, needed_ms + LONGEST_DOWNTIME_MS, "the job", f"{why} and a day")
    except DataLoss as refused:
        yield from_error(what, refused) if must_keep else warning(what, str(refused))
        return
    if "delete" not in facts.config.get("cleanup.policy", "delete"):
        yield ok(what, f"{facts.topic!r} is compacted late enough")
        return
    by_age_ms, by_size = int(facts.config.get("retention.ms", "-1")), int(facts.config.get("retention.bytes", "-1"))
    needed, age = written(needed_ms), f"{written(max(by_age_ms, 0))} (retention.ms={by_age_ms})"
    if by_size >= 0:
        yield warning(
            what,
            f"{facts.topic!r} also deletes by size (retention.bytes={by_size} per partition), whatever is still "
            f"needed: records must stay for {needed} ({why}), and for the longest downtime",
        )
    if 0 <= by_age_ms < needed_ms:
        yield error(
            what,
            f"{facts.topic!r} deletes after {age}, and {needed} is needed ({why}): lengthen it",
            ExitCode.DATA_LOSS,
        )
    elif 0 <= by_age_ms < needed_ms + LONGEST_DOWNTIME_MS:
        yield warning(
            what,
            f"{facts.topic!r} deletes after {age}: beyond the {needed} that is needed ({why}) "
            "that allows less than a day of downtime",
        )
    elif by_size < 0:
        retention = "for ever" if by_age_ms < 0 else f"for {written(by_age_ms)}"
        yield ok(what, f"{facts.topic!r} keeps records {retention}; {needed} is needed ({why})")


def of_times(side: Side, facts: SideFacts, idle: Idle | None) -> Iterator[Finding]:
    """Says whether the event times of a sample are plausible. `idle` is the join's; None if it does not matter."""
    what, sample = f"{facts.name}.time", facts.sample
    if sample.tombstones and side.tombstones != "delete":
        yield _of_tombstones(side, facts)
    if side.where_of is not None and sample.records + sample.unfit:
        yield _of_where(side, facts)
    if not sample.records:
        which = "no sampled record that takes part" if sample.tombstones or sample.unfit else "no records yet"
        yield warning(what, f"{side.topic!r} has {which}: keys and times were not looked at")
        return
    times = sample.valid_times
    if not times:
        unit = unit_of(side, sample.future_ms, facts.now_ms)
        keys = f"`time`, `time_unit` ({side.time_unit})" if side.payload_time else "`time`"
        if sample.zoneless:
            remedy = f"{_zoneless(sample)}: {set_zone(facts.name)}"
        elif unit is not None:
            remedy = set_unit(facts, unit)
        else:
            remedy = f"correct {keys}, or the clock if they are from the future"
        yield error(
            what,
            f"none of {sample.records} sampled records of {side.topic!r} has a valid time at {side.time!r}: each would "
            f"be a dead letter; {remedy}",
            ExitCode.REFUSED,
        )
        return
    times_text = f"{iso(times[0])} to {iso(times[-1])}"
    if len(times) < sample.records:
        count = sample.records - len(times)
        text = f"{count} of {sample.records} sampled records have no valid time (others: {times_text})"
        text += f", {_zoneless(sample)}" if sample.zoneless else ""
        yield dead_letters(what, text, facts, set_zone(facts.name) if sample.zoneless else "")
    usual_ms = times[len(times) // 2]
    if 0 < usual_ms < SECONDS_NOT_MS:
        unit = unit_of(side, usual_ms, facts.now_ms)
        remedy = "the producer must write milliseconds" if unit is None else set_unit(facts, unit)
        yield warning(what, f"times lie around {iso(usual_ms)}: {remedy}")
    elif idle is Idle.ADVANCE and times[-1] < facts.now_ms - LONG_AGO_MS:
        yield warning(
            what,
            f"the newest sampled record is of {iso(times[-1])}, more than a day ago: if old times are being replayed, "
            "set `idle: hold`",
        )
    elif len(times) == sample.records:
        yield ok(what, f"{len(times)} sampled records, {times_text}")


def _zoneless(sample: Sample) -> str:
    return f"{sample.zoneless} of them are texts without a zone (no_zone)"


def _of_where(side: Side, facts: SideFacts) -> Finding:
    what, sample = f"{facts.name}.where", facts.sample
    of = f"of {sample.records + sample.unfit} sampled records of {side.topic!r} fit {side.where_of}"
    if sample.records:
        return ok(what, f"{sample.records} {of}")
    return warning(what, f"0 {of}: all others are skipped; check its paths and texts, unless that kind is rare")


def _of_tombstones(side: Side, facts: SideFacts) -> Finding:
    what, sample = f"{facts.name}.tombstones", facts.sample
    text = "sampled records have no value, as Debezium writes after deletes"
    if side.tombstones == "skip":
        return ok(what, f"{sample.tombstones} {text}: they are skipped, and counted as such")
    text = f"{sample.tombstones} of {sample.records} {text}"
    if side.tombstones is None and not side.payload_time:
        return warning(what, f"{text}: they are joined like others; if they are deletes, set `{what}: skip`")
    return dead_letters(what, text, facts, f"set `{what}: skip`")


def dead_letters(what: str, text: str, facts: SideFacts, remedy: str = "") -> Finding:
    """Says that records become dead letters. Without a topic for them, the first one stops the job."""
    if facts.has_dead_letters:
        return warning(what, "; ".join(filter(None, (f"{text}: dead letters", remedy))))
    topic = "name a topic for dead letters (`topics.dead_letter`)"
    return error(
        what, f"{text}: each would stop the job; {', or '.join(filter(None, (remedy, topic)))}", ExitCode.REFUSED
    )


def set_unit(facts: SideFacts, unit: TimeUnit) -> str:
    """Returns the advice to set another time unit."""
    return f"they are plausible as `{unit}`: set `{facts.name}.time_unit: {unit}`"


def of_disorder(side: Side, facts: SideFacts) -> Iterator[Finding]:
    """Says how far out of order the sample is."""
    seen = disorder_of(facts.sample)
    if seen is None:
        return
    what = f"{facts.name}.disorder"
    others = disorder_of(facts.sample, facts.outliers)
    if others is not None and others <= side.disorder_ms < seen:
        yield warning(
            what,
            f"single records of the sample are out of order by {written(seen)}, all others by {written(others)}, and "
            f"{written(side.disorder_ms)} is configured: if their times are wrong, leave it so, and fix the producer",
        )
    elif seen > side.disorder_ms:
        yield warning(
            what,
            f"the sample is out of order by {written(seen)}, and {written(side.disorder_ms)} is configured: such "
            f"records can be late; set {what} higher",
        )
    else:
        yield ok(what, f"{written(seen)} in the sample, {written(side.disorder_ms)} is configured")


def disorder_of(sample: Sample, outliers: int = 0) -> int | None:
    """Returns the largest distance of a valid time below an earlier one of its partition; None without valid times.

    outliers   in each partition, this many records are left out: those furthest from the median of 2n + 1
    """
    lags = []
    for times in sample.times.values():
        valid = np.array([at for at in times if at is not None], np.int64)
        if outliers and len(valid) > 2 * outliers:
            blocks = sliding_window_view(np.pad(valid, outliers, mode="edge"), 2 * outliers + 1)
            furthest = np.argsort(np.abs(valid - np.median(blocks, axis=1)))
            valid = np.delete(valid, furthest[-outliers:])
        if len(valid):
            lags.append(int(lags_of(valid, None)[0].max()))
    return max(lags, default=None)


def of_deletes(spec: JoinSpec, right: Sample) -> Iterator[Finding]:
    """Warns of a long window over a topic in which keys are deleted: it still joins what was deleted."""
    if right.deletes and spec.right.before_ms > LONG_AGO_MS and not spec.right.of_versions:
        yield warning(
            "join.before",
            f"{right.deletes} of {right.records} sampled records of {spec.right.topic!r} delete their key, and a "
            f"window of {written(spec.right.before_ms)} goes on joining left with what was deleted: if right is a "
            "table that changes, make it a lookup join with `join: {before: unlimited, policy: last}`, over a "
            "namespace with `keep: versions` (docs/table.md)",
        )


def of_keys(spec: JoinSpec, left: Sample, right: Sample) -> Iterator[Finding]:
    """Says whether both sides have keys in common."""
    if (why := nothing_in_common(spec, left, right)) is not None:
        yield warning("keys", why)
    elif left.distinct_keys and right.distinct_keys:
        common = common_keys(left, right)
        of = f"of {len(left.distinct_keys)} sampled keys of left and {len(right.distinct_keys)} of right"
        doubt = "" if common else "; the samples are too small to tell whether any will match"
        yield ok("keys", f"{common} {of} are common ({right.share:.0%} of right's records of that time){doubt}")


def of_partitions(spec: JoinSpec, partitions: int, why_not_direct: str | None) -> Finding:
    """Says which path a new checkpoint takes. `partitions` is left's number."""
    if why_not_direct is None:
        return ok("partitions", f"{partitions} on both sides, and the sampled keys fit")
    if spec.path is JoinPath.DIRECT:
        return from_error("partitions", not_direct(spec, why_not_direct))
    return ok("partitions", f"{why_not_direct}: the join goes through Spark's shuffle")


def of_place(place: PlaceFacts) -> Finding:
    """Says whether a checkpoint or a folder can be used."""
    if place.problem is not None:
        return error(place.key, place.problem, place.code)
    content = f" {place.content}" if place.content else ""
    if place.free_bytes is None:
        return ok(place.key, f"{place.location}{content}")
    free = f"{place.free_bytes / 1e9:,.1f} GB free"
    if place.free_bytes < LITTLE_SPACE:
        return warning(place.key, f"{place.location}{content}: only {free}")
    return ok(place.key, f"{place.location}{content}, {free}")
