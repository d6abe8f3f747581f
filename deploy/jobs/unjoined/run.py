"""Runs `teacup unjoined` once, made for cron: one slice after the other until none is left, then an exit code.

snapshot   the join, the output and right as they are now (`deploy.jobs.unjoined.snapshot`)
plan       plan a slice, and save the plan first; an unfinished one comes first
carry out  run the slice as a Spark batch job (`deploy.jobs.unjoined.stage`), then save the positions

Spark is started only if there is a slice to carry out. The run ends with the first slice that has room for all that
could be judged when it looked; otherwise it would go on for as long as the join.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from datadelay.watermark import UNKNOWN
from deploy.check.access import naming_all_lacks
from deploy.check.machine import written_folders
from deploy.check.uses import Use, to_judge
from deploy.checkpoint.run_record import RunRecord
from deploy.checkpoint.verdicts import folder_of, load, save
from deploy.jobfile.job import JoinJob
from deploy.jobs.failures import failed
from deploy.jobs.host import spark_properties
from deploy.jobs.replan import nothing_is_in
from deploy.jobs.runner import ready, with_lock
from deploy.jobs.stopping import Stop
from deploy.jobs.unjoined.snapshot import Logs, check_output, committed_plan, snapshot, state_left_behind
from deploy.jobs.unjoined.stage import Work, deliver_slice, verdicts_name
from deploy.output.accounts import check_whole, total
from deploy.watch.concerns import Concern
from deploy.watch.life.rule import Life, State
from deploy.watch.lines import Lines
from deploy.watch.measures import Measured
from joins.lookup.unjoined.expired import (
    Verdicts,
    after_slice,
    begin,
    begin_ms_of,
    plan,
    slice_is_whole,
)
from joins.lookup.unjoined.verdicts import SliceSummary
from joins.outcome import Outcome
from joins.plan.log_checks import check_compaction
from joins.read.deserialize import wait_for_registry
from teacup.base.errors import ExitCode
from teacup.base.times import iso
from teacup.kafka.client import committed_only
from teacup.kafka.delivery import claim
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.headers import EXPIRED
from teacup.kafka.log.admin import wait_for_brokers
from teacup.kafka.log.losses import CONTINUE
from teacup.spark.java import check_java
from teacup.spark.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("teacup")

_COUNTS = ("read", "joined", "before_start")

OFFSETS_AT_ONCE = 50_000_000
"""The most offsets of a right partition per slice: each takes a byte in the task that judges it."""


def run_unjoined(job: JoinJob, lines: Lines, stop: Stop, start: str | int | None = None) -> ExitCode:
    """Judges all right records that can no longer match; one line per slice; returns the exit code.

    stop     catches signals: the slice in progress is finished, and the next run goes on after it
    start    where the first run starts: "earliest", "latest" or a time; None: derived from the join's own `start`
    """

    def wait(stopped: Callable[[], bool]) -> None:
        wait_for_brokers(job.spec.kafka, stopped, job.brokers_answer_within_ms / 1000)
        wait_for_registry(job.spec.registry, [job.spec.right], stopped)

    def work(record: RunRecord) -> ExitCode:
        check_java()
        with naming_all_lacks(lambda: _use(job)):
            begins = ready(wait, _use(job).topics, lambda: stop.asked)
        if not begins:
            return ExitCode.STOPPED
        record.is_now(Life(State.RUNNING))
        with closing(Logs.of(job)) as logs:
            return _run(job, logs, lines, stop, start)

    return with_lock(folder_of(job.checkpoint), work, ExitCode.STOPPED)


def _use(job: JoinJob) -> Use:
    return to_judge(job, _buckets(job, [0])[0], _kafka(job))


def _run(job: JoinJob, logs: Logs, lines: Lines, stop: Stop, start: str | int | None) -> ExitCode:
    session: Session | None = None
    check_compaction(job.spec, logs.right.topic, logs.right.config())
    check_output(logs.output)
    try:
        while True:
            state = load(job.checkpoint)
            if state is not None and state.under_way is not None and _is_lost(job, state, logs):
                state = replace(state, under_way=None)
            left_behind = state is not None and state.under_way is not None
            if not left_behind:
                with naming_all_lacks(lambda: _use(job)):
                    state = _planned(job, logs, state, start)
            if state is None or state.under_way is None:
                if session is None:
                    _nothing(job, state, lines)
                return ExitCode.DONE
            if session is None and not stop.asked:
                lines.does(f"{job.spec.name}: unjoined records of {job.spec.right.topic} into {job.output.unjoined}")
                name = f"{job.spec.name}.unjoined"
                session = Session(name, spark_properties(job), exactly_once=job.output.exactly_once)
            if session is None or stop.asked:
                left = sum(range_.end - range_.start for range_ in state.under_way.right.values())
                lines.stopped(f"at least {left:,} records of {job.spec.right.topic} have no verdict yet", left)
                return ExitCode.STOPPED
            began, stop.begun = time.monotonic(), True
            summaries = _delivered(session.spark, job, state)
            reached = {summary.bucket: summary.reached for summary in summaries}
            save(job.checkpoint, after_slice(state, reached))
            lines.batch(gathered(summaries, state, time.monotonic() - began))
            if not left_behind and state.under_way.had_room(reached, OFFSETS_AT_ONCE):
                return ExitCode.DONE
    except Exception as error:  # noqa: BLE001 - Spark's errors have a text only while its JVM runs
        return failed((session and session.ended()) or error, written_folders(job))
    finally:
        if session is not None:
            session.close()


def _planned(job: JoinJob, logs: Logs, state: Verdicts | None, start: str | int | None) -> Verdicts | None:
    """Plans the next slice and saves the state; returns None if it is not yet known where to start."""
    seen = snapshot(job, logs)
    if state is None:
        begin_ms = begin_ms_of(job.spec, seen, start)
        if begin_ms is None:
            return None
        state = begin(job.spec, seen, logs.right, logs.output, begin_ms, uuid.uuid4().hex, log.warning)
        _claim(job, state)
    state = plan(job.spec, state, seen, logs.right, OFFSETS_AT_ONCE)
    save(job.checkpoint, state)
    return state


def _claim(job: JoinJob, state: Verdicts) -> None:
    """Lets new verdicts replace earlier ones, as removing their folder, or the join's checkpoint, asks for."""
    claim.begin(
        _kafka(job), [*_buckets(job, state.positions).values()], claim.Start(state.generation, {}, take_over=True)
    )


def _is_lost(job: JoinJob, state: Verdicts, logs: Logs) -> bool:
    """Returns whether to plan the slice under way again, from what retention has left of it.

    That is so with `on_data_loss: continue`, if nothing of it is written.
    """
    assert state.under_way is not None
    if slice_is_whole(job.spec, state, logs.right.ends()) or job.spec.on_data_loss != CONTINUE:
        return False
    ranges = state.under_way.right
    numbers = {bucket: ranges[p].number for p, bucket in _buckets(job, ranges).items()}
    lost = nothing_is_in(_kafka(job), numbers, state.generation)
    log.warning(
        "%s: retention has deleted right records of the slice under way: %s",
        job.spec.name,
        "it is planned again" if lost else "rows of it are written, so it is not planned again",
    )
    return lost


def _kafka(job: JoinJob) -> dict[str, str]:
    return {**committed_only(job.spec.kafka), **job.output.kafka}


def _buckets(job: JoinJob, partitions: Iterable[int]) -> dict[int, OutputBucket]:
    assert job.output.unjoined is not None
    return {p: OutputBucket(verdicts_name(job.spec), p, job.output.unjoined) for p in partitions}


def _delivered(spark: SparkSession, job: JoinJob, state: Verdicts) -> list[SliceSummary]:
    """Delivers a slice; returns the summaries. Raises `AccountsDiffer` if one is missing or occurs twice."""
    assert state.under_way is not None
    summaries = [batch.summary for batch in deliver_slice(spark, Work.of(job, state))]
    check_whole([summary.bucket for summary in summaries], len(state.under_way.right), "right partitions")
    return summaries


def _nothing(job: JoinJob, state: Verdicts | None, lines: Lines) -> None:
    expiry_ms = state_left_behind(job, committed_plan(job)).expiry_ms
    begun = state is not None and expiry_ms > UNKNOWN
    line = "the join has not reached any right record yet"
    if begun:
        line = f"up to {iso(expiry_ms)} every right record has its verdict"
    lines.idle(line, {"event": "nothing", "expiry_ms": expiry_ms if begun else None})


@dataclass(frozen=True, slots=True)
class SliceReport:
    """One slice. expiry_ms: right records below this time have their verdict; reasons: of unjoined records."""

    number: int
    seconds: float
    expiry_ms: int
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    dead: Mapping[str, int]
    concerns: tuple[Concern, ...] = ()

    @property
    def records(self) -> int:
        return self.counts["read"]

    def usual(self) -> list[str]:
        counts = self.counts
        return [
            f"slice {self.number}",
            f"right {counts['read']:,}",
            f"joined {counts['joined']:,}",
            f"unjoined {counts['unjoined']:,}",
            f"up to {iso(self.expiry_ms)}",
        ]

    def rare(self) -> list[str]:
        """Reasons other than `expired`, and what has no verdict."""
        parts = [f"{reason} {count:,}" for reason, count in self.reasons.items() if reason != EXPIRED]
        parts += [f"dead letters ({reason}) {count:,}" for reason, count in self.dead.items()]
        names = {"before the start": "before_start", "deleted unread": "skipped"}
        return parts + [f"{shown} {self.counts[name]:,}" for shown, name in names.items() if self.counts[name]]

    def for_machines(self) -> dict[str, Any]:
        return {
            "event": "slice",
            "number": self.number,
            "seconds": round(self.seconds, 6),
            "expiry_ms": self.expiry_ms,
            **self.counts,
            "reasons": dict(self.reasons),
            "dead": dict(self.dead),
        }

    def samples(self) -> Iterator[Measured]:
        """Yields nothing, as a run by cron ends before anybody asks."""
        return iter(())


def gathered(summaries: Sequence[SliceSummary], state: Verdicts, seconds: float) -> SliceReport:
    """Adds up one slice over all right partitions; `state` has it under way."""
    assert state.under_way is not None
    counts = {name: sum(getattr(summary, name) for summary in summaries) for name in _COUNTS}
    unjoined = sum(summary.rows.get(Outcome.UNJOINED, 0) for summary in summaries)
    return SliceReport(
        number=max(summary.number for summary in summaries),
        seconds=seconds,
        expiry_ms=state.under_way.expiry_ms,
        counts={**counts, "unjoined": unjoined, "skipped": state.skipped},
        reasons=dict(sorted(total(summary.reasons for summary in summaries).items())),
        dead=dict(sorted(total(summary.dead for summary in summaries).items())),
    )
