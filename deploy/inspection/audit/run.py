"""`teacup audit`: one run. It writes nothing, except corrections, if asked. A running job is not disturbed.

checkpoint   the plans of its last batches, and where the newest committed one ended. It is read before the topics, so
             that all rows up to there are in the output when its end is listed
topics       into Parquet files of numbers (`deploy.inspection.audit.scan`), then named records that lie outside
verdicts     in a DuckDB file beside them (`deploy.inspection.audit.verify.compare`)
corrections  if asked: of the rows that are different now (`deploy.inspection.audit.corrections`)
keys         of the records with faults: these records are read once more
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.past import last_written
from deploy.errors import CheckpointUnusable
from deploy.inspection.audit.corrections import check_whole, write_corrections
from deploy.inspection.audit.earlier import Earlier, earlier_than
from deploy.inspection.audit.findings import Fault, Findings
from deploy.inspection.audit.notes import notes_of, notes_of_versions
from deploy.inspection.audit.plan_history import PlanHistory, plan_history_of
from deploy.inspection.audit.records import SAMPLES
from deploy.inspection.audit.scan import Plan, Tables, Topic, Writers, plan
from deploy.inspection.audit.verify.compare import compare
from deploy.inspection.audit.verify.corrected import correct
from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.verify.scope import AuditScope, LeftSpan, RightSpan, VersionsKnown
from deploy.inspection.audit.written import PAST_CORRECTIONS, TABLES, alone_as_copies
from deploy.jobfile.job import JoinJob
from deploy.output.ours import origins_of
from joins.batch.handover import Handover
from joins.errors import JoinError
from joins.lookup.key_lookup import lookup_client, retained_from
from joins.plan.reader import state_after
from joins.read.deserialize import SideReader
from joins.read.parse import locate
from joins.spec import JoinSpec, JoinType
from teacup.base.now import wall_ms
from teacup.base.times import EARLIEST_MS, LATEST_MS
from teacup.kafka.client import committed_only
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.read.range_reader import open_reader
from teacup.storage.errors import StorageError

MEMORY = "800MB"
THREADS = 2
MOST = 20
"""Faults of each kind that are named."""

Tell = Callable[[str, int, int], None]


def audit(
    job: JoinJob,
    from_ms: int,
    to_ms: int,
    *,
    percent: float | None = None,
    folder: Path | None = None,
    most: int = MOST,
    corrections: str | None = None,
    tell: Tell = lambda *_: None,
) -> Findings:
    """Audits left records of [from_ms, to_ms).

    percent   how many of the keys; None: all
    folder    for its files while it runs; None: the temporary folder
    corrections   the topic for the rows that are different now; None: nothing is written
    tell      called with what is being done, how far it is, and out of how much

    Raises `CheckpointUnusable`, `CheckpointUnreadable`, `SpecChanged`, `DataLoss`, `KafkaIOError`.
    """
    began_s, now_ms = time.monotonic(), wall_ms()
    last = last_written(job)
    job = last.job
    history, handover, direct, generation = _course(job, last.further)
    earlier = earlier_than(job.spec, handover)
    planned = plan(job, history, from_ms, to_ms, now_ms, corrections)
    if corrections is not None:
        check_whole(planned, table=job.spec.right.of_versions)
    sample = None if percent is None else max(round(percent * SAMPLES / 100), 1)
    with _folder(folder) as inside:
        origins = origins_of(job.spec.name, generation, handover)
        origin = BatchTag.of(job.spec.name, generation, 0).origin if earlier.rewound else None
        again = [*earlier.again(job.spec.name, generation)]
        later = {BatchTag.of(job.spec.name, one, 0).origin for one in last.later}
        tables = Tables(job, history, Writers(origins, origin, again, later), inside, now_ms, sample, tell)
        tables.read(planned)
        with _database(inside) as db:
            left_out = _strays(db, inside, tables, planned, from_ms, to_ms)
            counts = {name: int(db.one(f"SELECT count(*) FROM {name}")) for name in TABLES}
            rewritten = int(db.one("SELECT count(*) FROM all_rows")) - counts["rows"]
            scope = scope_of(job, history, planned, earlier, from_ms, to_ms)
            versions = versions_known(job.spec, planned.right, counts["rights"]) if job.spec.right.of_versions else None
            scope = replace(scope, all_named=not left_out, direct=direct, versions=versions)
            verdicts = compare(db, scope, most, lambda what: tell(what, planned.offsets, planned.offsets))
            corrected, refused = None, 0
            if corrections is not None:
                tell("corrections", planned.offsets, planned.offsets)
                _past_corrections(db, inside)
                correct(db, scope)
                newest = db.one("SELECT max(run) FROM past_corrections") or 0  # by another clock, perhaps
                tag = BatchTag.of(job.spec.name, generation, max(now_ms, newest + 1))
                corrected, refused = write_corrections(job, db, planned, tag, direct=direct)
    faults = [*_with_keys(job, planned, verdicts.faults)]
    return Findings(
        job=job.spec.name,
        from_ms=from_ms,
        to_ms=to_ms,
        sample=percent,
        seconds=time.monotonic() - began_s,
        read=counts,
        strict=verdicts.strict,
        allowed=verdicts.allowed,
        untold=sum(verdicts.untold.values()),
        outcomes=verdicts.outcomes,
        side=verdicts.side,
        repeated=verdicts.repeated,
        counts=verdicts.counts,
        faults=faults,
        minutes=verdicts.minutes,
        corrections=None if corrected is None else dict(corrected),
        notes=[
            *notes_of(job, history, planned, earlier, verdicts, left_out, tables, rewritten, versions),
            *([] if versions is None else notes_of_versions(job, versions, verdicts)),
            *(
                [f"{refused:,} rows are too large for {corrections}, or their select fails: not written"]
                * bool(refused)
            ),
        ],
    )


def _course(job: JoinJob, further: Mapping[int, int]) -> tuple[PlanHistory, Handover | None, bool, str]:
    """Returns what is known of the run, the handover from another checkpoint (if any), whether the run took the direct
    path, and its generation."""
    checkpoint = Checkpoint(job.checkpoint)
    plans = [*checkpoint.committed_plans()]
    if not plans:
        raise CheckpointUnusable(
            f"checkpoint {job.checkpoint!r} has no completed batch of a join: nothing to audit yet"
        )
    checkpoint.check_belongs(plans[-1], job.spec)
    spec = replace(job.spec, kafka=committed_only(job.spec.kafka))
    after = state_after(spec, plans[-1], job.facts_folders)
    lookup = job.spec.right.source.is_stored
    handover = checkpoint.moved()
    moved = handover is not None
    history = plan_history_of(plans, after, job.spec.right.after_ms, lookup=lookup, moved=moved, further=further)
    return history, handover, not lookup and plans[-1].parts is None, plans[-1].generation


def scope_of(
    job: JoinJob, history: PlanHistory, planned: Plan, earlier: Earlier, from_ms: int, to_ms: int
) -> AuditScope:
    """Returns what is compared, and where."""
    spec, output = job.spec, job.output
    moved = earlier.left
    begins = None if moved else history.begins
    left = {}
    for p, (begin, end) in planned.left.spans.items():
        due = None if spec.start == "latest" else 0
        if begins is not None:
            due = begins.get(p, 0)
        if earlier.unlike:
            due = max(due or 0, moved.get(p, 0))
        ends = planned.left.ends[p]
        kept_from = planned.left.kept_from(p)
        twice = earlier.twice("left", p, moved.get(p, 0))
        left[p] = LeftSpan(begin, end, history.done.get(p, 0), due, moved.get(p, 0), kept_from, ends.high, *twice)
    right = {}
    for p, (begin, end) in planned.right.spans.items():
        first = 0 if spec.start == "earliest" else None
        if history.right_begins is not None:
            first = history.right_begins.get(p, 0)
        ends = planned.right.ends[p]
        done = history.right[p].end if p in history.right else end
        expiry_ms, kept_from = history.expiry_ms.get(p, EARLIEST_MS), planned.right.kept_from(p)
        twice = earlier.twice("right", p, first or 0)
        right[p] = RightSpan(begin, end, first, done, expiry_ms, kept_from, ends.high, *twice)
    alone = {"unjoined": output.topic} if spec.right.type is JoinType.FULL else {}
    complete = {role: topic.complete for role, topic in (*planned.copies.items(), ("output", planned.output))}
    return AuditScope(
        join=spec.right,
        from_ms=from_ms,
        to_ms=to_ms,
        envelopes=output.select is None,
        once=output.exactly_once or output.deduplicate is not None,
        copies_once=output.exactly_once,
        one_topic=spec.one_topic,
        output=output.topic,
        topics={**job.output.side_topics, **alone},
        left=left,
        right=right,
        complete={**complete, **dict.fromkeys(alone, planned.output.complete)},
        skips={name: skips for name in ("left", "right") if (skips := spec.side(name).skips)},
        from_due_ms=spec.start if isinstance(spec.start, int) and begins is None else EARLIEST_MS,
    )


def versions_known(spec: JoinSpec, right: Topic, read: int) -> VersionsKnown:
    """Finds the time from which versions are known. Right and the rows must have been read.

    read   how many records there were in right's topic
    """
    whole_from_ms = EARLIEST_MS
    if right.compaction is not None and read < right.offsets:
        skew_ms = spec.max_future_skew_ms if spec.right.payload_time else 0
        whole_from_ms = right.compaction.known_from(wall_ms(), skew_ms)
    try:
        with closing(lookup_client(spec)) as client:
            namespace = client.namespace(spec.right.store.storage.namespace)
        return VersionsKnown(whole_from_ms, right.cut, retained_from(namespace), namespace.bound)
    except (StorageError, JoinError) as error:
        return VersionsKnown(whole_from_ms, right.cut, LATEST_MS, problem=str(error))


@contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    """Yields a folder of its own and removes it in the end."""
    made = Path(tempfile.mkdtemp(prefix="teacup-audit-", dir=folder))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _database(folder: Path) -> Iterator[AuditTables]:
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": THREADS,
        "memory_limit": MEMORY,
        "temp_directory": str(folder / "spilled"),
    }
    con = duckdb.connect(str(folder / "audit.duckdb"), config=config)
    try:
        con.execute("SET preserve_insertion_order = false")
        con.execute("SET enable_progress_bar = false")
        yield AuditTables(con)
    finally:
        con.close()


def _views(db: AuditTables, folder: Path, *, full: bool) -> None:
    """Makes a view of each table's files, without rows and copies that were written again later.

    full   rows about right records alone are copies
    """
    for name, schema in TABLES.items():
        if not any(folder.glob(f"{name}-*.parquet")):
            pq.write_table(schema.empty_table(), folder / f"{name}-000000.parquet")
        db.run(f"CREATE OR REPLACE VIEW in_{name} AS SELECT * FROM read_parquet('{folder}/{name}-*.parquet')")
        taken = alone_as_copies(name) if full else f"SELECT * FROM in_{name}"
        db.run(f"CREATE OR REPLACE VIEW all_{name} AS {taken}")
        db.run(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM all_{name}")
    db.make(
        "newest",
        "SELECT pos, max(pass) AS pass FROM (SELECT lpos AS pos, pass FROM all_rows "
        "UNION ALL SELECT pos, pass FROM all_copies WHERE is_left) WHERE pass > 0 GROUP BY 1",
    )
    if db.one("SELECT count(*) FROM newest"):
        for name, pos in (("rows", "lpos"), ("copies", "CASE WHEN a.is_left THEN a.pos END")):
            db.run(
                f"CREATE OR REPLACE VIEW {name} AS SELECT a.* FROM all_{name} a LEFT JOIN newest n ON n.pos = {pos} "
                "WHERE n.pos IS NULL OR a.pass = n.pass"
            )


def _past_corrections(db: AuditTables, folder: Path) -> None:
    """Makes the table of earlier corrections."""
    pq.write_table(PAST_CORRECTIONS.empty_table(), folder / "past_corrections-000000.parquet")
    db.make("past_corrections", f"SELECT * FROM read_parquet('{folder}/past_corrections-*.parquet')")


def _strays(db: AuditTables, folder: Path, tables: Tables, planned: Plan, from_ms: int, to_ms: int) -> int:
    """Reads the records that rows and copies of the range name, as far as they were not read yet.

    Returns how many runs of them were left out.
    """
    full = tables.spec.right.type is JoinType.FULL
    _views(db, folder, full=full)
    left_out = 0
    inside = f"ts >= {from_ms} AND ts < {to_ms}"
    for name, table, column, side in (("left", "lefts", "lpos", "is_left"), ("right", "rights", "rpos", "NOT is_left")):
        query = (
            f"SELECT DISTINCT n.pos FROM (SELECT {column} AS pos FROM rows WHERE {inside} AND {column} IS NOT NULL "
            f"UNION ALL SELECT pos FROM copies WHERE {inside} AND {side} AND pos IS NOT NULL) n "
            f"ANTI JOIN {table} t ON t.pos = n.pos"
        )
        positions = [pos for (pos,) in db.all(query)]
        left_out += tables.read_spots(name, getattr(planned, name), positions)
    _views(db, folder, full=full)
    return left_out


def _with_keys(job: JoinJob, planned: Plan, faults: Sequence[Fault]) -> Iterator[Fault]:
    """Yields the faults with the keys of their records."""
    kafka = committed_only(job.spec.kafka)
    for fault in faults:
        key = None
        for name, spot in (("left", fault.left), ("right", fault.right)):
            ends = None if spot is None else getattr(planned, name).ends.get(spot[0])
            if key is not None or spot is None or ends is None or not ends.start <= spot[1] < ends.stable:
                continue
            side = job.spec.side(name)
            for batch in SideReader(side, kafka, job.spec.registry).read(spot[0], spot[1], spot[1] + 1):
                keys = locate(side, batch).keys
                key = (batch.column("key") if keys is None else keys)[0].as_py()
        if key is None and fault.at is not None:
            written = committed_only(job.written_with)
            for batch in open_reader(fault.topic, written).read(fault.at[0], fault.at[1], fault.at[1] + 1):
                key = batch.column("key")[0].as_py()
        yield replace(fault, key=None if key is None else _shown(key))


def _shown(key: bytes) -> str:
    """Returns a key for people."""
    text = json.dumps(key.decode("utf-8", errors="backslashreplace"), ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."
