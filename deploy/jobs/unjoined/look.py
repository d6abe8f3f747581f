"""What `teacup unjoined` looks at before it plans a slice.

The join's newest committed batch, then the ends of the output, then those of right; in this order, see
`joins.lookup.unjoined.expired`. Then it waits until the output is readable up to there: an open transaction, perhaps of
a process that is gone, may precede rows of committed batches.

Where `teacup unjoined` keeps its verdicts: a file in the folder `unjoined` of the join's checkpoint.

It is JSON with a checksum, and is replaced as a whole by a new file that has reached the disk: whatever happens, the
old or the new one is there.

What `teacup unjoined` reports of a slice, over all right partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import fsspec

from datadelay.positions.checkpoint import SparkCheckpoint
from deploy.job import JoinJob
from deploy.jobfile.join_keys import IN_FILE
from joins.batch.state import BatchPlan
from joins.errors import DataLoss, SpecChanged
from joins.lookup.unjoined.expired import REMEDY, Seen, Verdicts
from joins.lookup.unjoined.verdicts import SliceSummary
from joins.plan.reader import state_after
from joins.read.deserialize import times_as_json
from teacup.base import files as durable
from teacup.base.fields import local_folder
from teacup.base.files import checked_text, from_checked_text
from teacup.base.now import wall_ms
from teacup.base.times import iso
from teacup.kafka.client import committed_only
from teacup.kafka.headers import EXPIRED
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.point_reader import wait_until_readable

OPEN_TRANSACTION_S = 60.0


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs of the two topics."""

    right: BrokerLog
    output: BrokerLog

    @classmethod
    def of(cls, job: JoinJob) -> Logs:
        """Opens both; they are to be closed."""
        kafka, side = committed_only(job.spec.kafka), job.spec.right
        right = BrokerLog(
            side.topic,
            kafka,
            side.time_of,
            max_future_skew_ms=job.spec.max_future_skew_ms,
            as_json=times_as_json(side, job.spec.registry),
        )
        return cls(right, BrokerLog(job.output.topic, kafka))

    def close(self) -> None:
        """Closes both."""
        self.right.close()
        self.output.close()


def look(job: JoinJob, logs: Logs) -> Seen:
    """Looks at everything, in the order that makes it valid. Raises `KafkaUnavailable` if the output is unreadable."""
    batch_plan = state_left_behind(job, committed_plan(job))
    now_ms = wall_ms()
    topics = {"right": logs.right.topic_id(), "output": logs.output.topic_id()}
    output = logs.output.ends()
    right = logs.right.ends()
    wait_until_readable(logs.output, output, OPEN_TRANSACTION_S)
    return Seen(batch_plan, now_ms, output, right, topics)


def committed_plan(job: JoinJob) -> BatchPlan:
    """Returns the batch plan of the join's newest committed batch. Raises `SpecChanged`, and like `SparkCheckpoint`."""
    ends = SparkCheckpoint(job.checkpoint).ends()
    if len(ends) != 1 or not isinstance(ends[0], dict):
        raise SpecChanged(f"checkpoint {job.checkpoint} is not that of a join: it has {len(ends)} sources")
    batch_plan = BatchPlan.from_json(ends[0])
    batch_plan.check_belongs_to(job.spec, IN_FILE)
    return batch_plan


def state_left_behind(job: JoinJob, batch_plan: BatchPlan) -> BatchPlan:
    """Returns the state after a committed batch, from its facts.

    The next batch plan would hold it, but a join at its end may not plan one for a day.
    """
    spec = replace(job.spec, kafka=committed_only(job.spec.kafka))
    return state_after(spec, batch_plan, job.facts_folders)


def check_output(output: BrokerLog) -> None:
    """Raises `DataLoss` for a compacted output topic."""
    policy = output.config().get("cleanup.policy", "")
    if "compact" in policy:
        raise DataLoss(
            f"output topic {output.topic!r} has cleanup.policy={policy}: rows that compaction removes would make their "
            "right records unjoined. Give it cleanup.policy=delete"
        )


FOLDER, FILE = "unjoined", "verdicts.json"


def folder_of(checkpoint: str) -> str:
    """Returns the folder of the state, in a join's checkpoint."""
    return f"{checkpoint.rstrip('/')}/{FOLDER}"


def load(checkpoint: str) -> Verdicts | None:
    """Reads what the last run left; None before the first one. Raises `SpecChanged` if it cannot be read."""
    files, root = fsspec.core.url_to_fs(folder_of(checkpoint))
    path = f"{root}/{FILE}"
    files.invalidate_cache()
    if not files.exists(path):
        return None
    try:
        return Verdicts.from_json(from_checked_text(files.cat_file(path).decode()))
    except (ValueError, KeyError, TypeError) as error:
        raise SpecChanged(f"{path} is damaged, or of another version ({error}): {REMEDY}") from error


def save(checkpoint: str, state: Verdicts) -> None:
    """Saves the state. It is durable when this returns; on an object store, as durable as its put."""
    text = checked_text(state.to_json()).encode()
    folder = local_folder(folder_of(checkpoint))
    if folder is None:
        files, root = fsspec.core.url_to_fs(folder_of(checkpoint))
        files.pipe_file(f"{root}/{FILE}", text)
        return
    durable.write(folder / FILE, text)


_COUNTS = ("read", "joined", "before_start")


@dataclass(frozen=True, slots=True)
class SliceReport:
    """One slice. over_ms: right records below this time have their verdict; reasons: of unjoined records."""

    number: int
    seconds: float
    over_ms: int
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    dead: Mapping[str, int]
    warnings: tuple[str, ...] = ()

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
            f"up to {iso(self.over_ms)}",
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
            "over_ms": self.over_ms,
            **self.counts,
            "reasons": dict(self.reasons),
            "dead": dict(self.dead),
        }


def gathered(summaries: Sequence[SliceSummary], state: Verdicts, seconds: float) -> SliceReport:
    """Adds up one slice over all right partitions; `state` has it under way."""
    assert state.under_way is not None
    reasons: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    for summary in summaries:
        reasons.update(summary.reasons)
        dead.update(summary.dead)
    counts = {name: sum(getattr(summary, name) for summary in summaries) for name in _COUNTS}
    unjoined = sum(summary.rows.get("unjoined", 0) for summary in summaries)
    return SliceReport(
        number=max(summary.number for summary in summaries),
        seconds=seconds,
        over_ms=state.under_way.over_ms,
        counts={**counts, "unjoined": unjoined, "skipped": state.skipped},
        reasons=dict(sorted(reasons.items())),
        dead=dict(sorted(dead.items())),
    )
