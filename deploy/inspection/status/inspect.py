"""Inspects the job of a file from outside its process: the lock and files of its checkpoint, and its topics.

Nothing is written, no group is joined, and a job may start meanwhile. Each step has a time limit. If something cannot
be inspected (a checkpoint out of reach, brokers that do not answer), the row says why, with what was learned before. A
job file with errors is shown as a failed job, under the name that a process gives it.

A lookup join for which `teacup unjoined` has run has a second row, for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from datadelay.errors import DelayError
from dedup.errors import DedupError
from deploy.check.access import naming_all_lacks
from deploy.check.uses import Named, to_see
from deploy.checkpoint.file import CheckpointFile
from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.lease import Lease
from deploy.checkpoint.lease_file import LEASE, SHOWN_S, standby_of
from deploy.checkpoint.lock import Holder, Lock, inspect_lock
from deploy.checkpoint.run_record import last_run
from deploy.checkpoint.verdicts import folder_of, load
from deploy.errors import DeployError, code_of_inspection
from deploy.inspection.status.row import LastBatch, Row
from deploy.jobfile.job import CommonJob, JoinJob
from deploy.jobfile.load import job_files, read_file
from deploy.jobfile.shared_process import WrongFile, named
from deploy.kinds.job_kind import kind_of
from joins.errors import JoinError
from teacup.base.disks import disk_of
from teacup.base.errors import ExitCode
from teacup.base.fields import local_folder
from teacup.base.now import wall_ms
from teacup.base.process import within
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.admin import wait_for_brokers
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.topic_log import Ends

if TYPE_CHECKING:
    from deploy.kinds.job_kind import JobKind

T = TypeVar("T")

ANSWERED_WITHIN_S = 5.0
"""How long brokers are asked whether they are there."""
WITHIN_S = 15.0
"""How long a step may take: the checkpoint, or the topics."""
AT_ONCE = 16
OURS = (DeployError, JoinError, DedupError, DelayError, KafkaIOError)


def inspect_all(places: Sequence[Path], assignments: Sequence[str] = ()) -> list[Row]:
    """Inspects the jobs of all files and folders at the same time; the rows are in the order of the files.

    Raises `SettingsInvalid` for a folder without job files.
    """
    files = job_files(places)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        read = named(dict(zip(files, pool.map(lambda file: read_file(file, assignments), files), strict=True)))
        of_files = list(pool.map(lambda file: _rows(file, read[file]), files))
    return [row for rows in of_files for row in rows]


def _rows(file: Path, job: CommonJob | WrongFile) -> list[Row]:
    """Looks at the job of a file. Raises nothing."""
    row = Row(file=str(file), looked_ms=wall_ms())
    if isinstance(job, WrongFile):
        return [replace(row, name=job.name, wrong=f"{file}: {job}")]
    kind = kind_of(job)
    row = replace(row, name=kind.name, kind=job.kind, ends_by_itself=job.trigger_ms is None)
    rows = [_inspected(row, job.checkpoint, lambda row: _with_batches(row, kind))]
    if isinstance(job, JoinJob) and job.spec.right.source.is_stored:
        rows += _of_unjoined(job, row)
    return rows


def _inspected(row: Row, checkpoint: str, more: Callable[[Row], Row]) -> Row:
    """Returns the row with what the lock and the last run say and what `more` adds, or with why that is not known."""
    row = replace(row, lock=_lock(checkpoint))
    try:
        row = within(WITHIN_S, lambda: _with_files(row, checkpoint))
        return more(row)
    except OURS as error:
        return replace(row, problem=str(error), code=code_of_inspection(error))
    except TimeoutError:
        problem = f"the file system of {checkpoint} has not answered within {WITHIN_S:g} s"
        return replace(row, problem=problem, code=ExitCode.UNREACHABLE)
    except Exception as error:  # noqa: BLE001 - each file system has errors of its own, and the other rows are shown
        problem = f"checkpoint {checkpoint!r} cannot be read: {type(error).__name__}: {error}"
        return replace(row, problem=problem, code=ExitCode.UNREACHABLE)


def _lock(checkpoint: str) -> Lock:
    folder = local_folder(checkpoint)
    if folder is None:
        return Lock(held=None, unknown="a remote checkpoint has no lock: whether a process runs on it is not known")
    return inspect_lock(folder)


def _with_files(row: Row, checkpoint: str) -> Row:
    """Returns the row with what the checkpoint's files say: last run, standby, and a lease where no lock shows."""
    folder = local_folder(checkpoint)
    disk = None if folder is None else disk_of(folder)
    row = replace(row, run=last_run(checkpoint), disk=disk, standby=standby_of(checkpoint, row.looked_ms))
    lease = CheckpointFile(checkpoint, LEASE).read(Lease) if row.lock.held is None else None
    if lease is None or lease.released or abs(row.looked_ms - lease.at_ms) > SHOWN_S * 1000:
        return row
    return replace(row, lock=Lock(held=True, holder=Holder(str(lease.process), lease.host)))


def _with_batches(row: Row, kind: JobKind) -> Row:
    within(WITHIN_S, kind.find_checkpoint)
    end, row = within(WITHIN_S, lambda: _last_batch(row, kind.common))
    if not end:
        within(WITHIN_S, lambda: ends_of(kind.topics()))  # checks that they are there
        return row
    checked = _within_limits(row, kind, end)
    # A running job removes a batch's facts some batches later.
    if not (checked.event_time_lag.exact or checked.problem):
        end, row = within(WITHIN_S, lambda: _last_batch(row, kind.common))
        checked = _within_limits(row, kind, end)
    return checked


def _within_limits(row: Row, kind: JobKind, end: dict[str, Any]) -> Row:
    try:
        return within(WITHIN_S, lambda: _with_topics(row, kind, end))
    except TimeoutError:
        return replace(row, problem=f"the brokers have not answered within {WITHIN_S:g} s", code=ExitCode.UNREACHABLE)
    except OURS as error:
        return replace(row, problem=str(error), code=code_of_inspection(error))


def _last_batch(row: Row, job: CommonJob) -> tuple[dict[str, Any], Row]:
    """Returns where the newest committed batch ends (empty if there is none), and the row with that batch."""
    checkpoint = Checkpoint(job.checkpoint)
    end = checkpoint.committed_end()
    if not end:
        return {}, row
    return end, replace(row, batch=LastBatch(end["number"], checkpoint.committed_at_ms()))


def _with_topics(row: Row, kind: JobKind, end: dict[str, Any]) -> Row:
    read = {named.topic: named.key.removesuffix(".topic") for named in kind.topics() if not named.written}
    ends = ends_of(kind.topics())
    positions = kind.positions(end)
    lag = {side: sum(unread.values()) for side, unread in _by_side(read, ends, positions).items()}
    lost = dict.fromkeys(read.values(), 0)
    for (topic, p), position in positions.items():
        if topic in read and p in ends[topic]:
            lost[read[topic]] += max(ends[topic][p].start - position, 0)
    row = replace(row, lag=lag, lost={side: count for side, count in lost.items() if count})
    try:
        with naming_all_lacks(lambda: to_see(kind.topics())):
            return replace(row, event_time_lag=kind.event_time_lag(end, ends, wall_ms()))
    except OURS as error:
        return replace(row, problem=str(error), code=code_of_inspection(error))


def _by_side(
    read: Mapping[str, str], ends: Mapping[str, Mapping[int, Ends]], positions: Mapping[tuple[str, int], int]
) -> dict[str, dict[int, int]]:
    """Counts the unread offsets of each partition; all of a partition that the job does not know yet."""
    return {
        side: {p: max(end.stable - positions.get((topic, p), end.start), 0) for p, end in ends[topic].items()}
        for topic, side in read.items()
    }


def ends_of(topics: Sequence[Named]) -> dict[str, Mapping[int, Ends]]:
    """Returns the ends of the topics that are read. Raises `KafkaUnavailable` within seconds, `KafkaIOError`."""
    seen = to_see(topics).topics
    wait_for_brokers(seen[0].kafka, give_up_after_s=ANSWERED_WITHIN_S)
    with naming_all_lacks(lambda: to_see(topics)), ExitStack() as stack:
        logs = {named.topic: stack.enter_context(closing(BrokerLog(named.topic, named.kafka))) for named in seen}
        return {topic: log.ends() for topic, log in logs.items()}


def _of_unjoined(job: JoinJob, row: Row) -> list[Row]:
    """Looks at `teacup unjoined`; returns nothing if it has never run."""
    folder, spec = folder_of(job.checkpoint), job.spec

    def more(row: Row) -> Row:
        state = within(WITHIN_S, lambda: load(job.checkpoint))
        if state is None:
            return row
        row = replace(row, batch=LastBatch(max(state.numbers.values(), default=0)))
        ends = within(WITHIN_S, lambda: ends_of([Named("right.topic", spec.right.topic, spec.kafka)]))
        positions = {(spec.right.topic, p): at for p, at in state.positions.items()}
        (unread,) = _by_side({spec.right.topic: "right"}, ends, positions).values()
        return replace(row, lag={"right": sum(unread.values())})

    inspected = _inspected(
        replace(row, name=f"{row.name}.unjoined", kind="unjoined", ends_by_itself=True), folder, more
    )
    return [inspected] if inspected.run is not None or inspected.batch is not None else []
