"""`teacup audit --corrections TOPIC`: the rows that are different now, as records for a topic of their own.

A correction looks like a row of the output: the same code makes its key, value, time and headers. A correction without
a value withdraws a row; a header says so, because a `select` may also give a row no value. The batch number in the
header `teacup` is the time of the run in milliseconds, raised above those of all earlier corrections: of the
corrections of a row, the one with the largest number counts (`deploy.inspection.audit.verify.corrected`).

Corrections do not depend on each other: if a run is killed, the next one writes the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl

from deploy.check.analysis import Analyser
from deploy.inspection.audit.records import SHIFT, spots_in
from deploy.inspection.audit.scan import Plan, runs_of
from deploy.inspection.audit.verify.database import AuditTables
from deploy.inspection.audit.written import WITHDRAWN
from deploy.jobfile.job import JoinJob, Output
from deploy.output.deliveries import Writing
from deploy.output.routing import HAS_LEFT, HAS_RIGHT, not_refused, outgoing_results, select_failures, too_large
from joins.errors import DataLoss, SpecError
from joins.outcome import Outcome
from joins.read.deserialize import SideReader
from joins.read.parse import parse
from joins.rows.frames import RECORD, ROW, empty_rows, rows_about
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec
from joins.window.bolt import Offer
from joins.window.slices import Slice, key_hashes
from joins.window.window import IS_DELETED, Window
from teacup.base.now import wall_ms
from teacup.base.times import EARLIEST_MS, LATEST_MS
from teacup.kafka.client import committed_only
from teacup.kafka.delivery.delivery import AtLeastOnce
from teacup.kafka.delivery.provenance import BatchTag, provenance
from teacup.kafka.headers import CORRECTS, EXPIRED, OUTCOME, REASON
from teacup.kafka.read.range_reader import open_reader
from teacup.kafka.write.templates import Form, TextHeader, TextPiece
from teacup.kafka.write.topic_limits import limits_of, within_limits

AT_ONCE = 2_000
"""Corrections whose records are in memory together."""

Read = Callable[[str, pl.Series], pl.DataFrame]
"""(`left` or `right`, positions) -> their records (`joins.rows.frames.RECORD`), in this order"""

SAYS = (
    TextHeader(CORRECTS, (TextPiece(column="corrects", form=Form.RAW),), where="had"),
    TextHeader(REASON, (TextPiece(column="why", form=Form.RAW),)),
)


def check_whole(plan: Plan, *, table: bool) -> None:
    """Raises `DataLoss` if a topic has lost records that corrections need, `SpecError` if theirs would lose some."""
    assert plan.corrections is not None
    for topic in (plan.output, *(() if table else (plan.right,))):
        if topic.cut:
            raise DataLoss(
                f"{topic.name}: retention has deleted records in or before the range, and without them "
                "corrections could be wrong. Use a later --from"
            )
        if topic.compaction is not None:
            raise DataLoss(
                f"{topic.name} is compacted: any of its records may be gone, and without them corrections could be "
                "wrong. Audit without --corrections"
            )
    if plan.corrections.compaction is not None:
        raise SpecError(
            f"--corrections: topic {plan.corrections.name!r} is compacted, which would keep one correction of each "
            "key, while several left records share a key. Give it cleanup.policy=delete"
        )


def write_corrections(
    job: JoinJob, db: AuditTables, plan: Plan, tag: BatchTag, *, direct: bool
) -> tuple[Counter[str], int]:
    """Writes all of the table `corrections`; returns how many by reason, and how many rows the topic refuses.

    tag   names the run, and the checkpoint
    """
    assert plan.corrections is not None
    topic, kafka = plan.corrections.name, job.written_with
    limits = limits_of(kafka, [topic])
    writing = Writing(AtLeastOnce(within_limits(kafka, limits)))
    reader = Reader(job, {False: job.output.topic, True: topic})
    written, refused = Counter[str](), 0
    with Analyser() as analyser:
        for batch in db.batches("FROM corrections ORDER BY lpos, rpos"):
            for at in range(0, batch.num_rows, AT_ONCE):
                some = with_corrects(pl.DataFrame(pl.from_arrow(batch.slice(at, AT_ONCE))))
                gone = some["withdrawn"]
                rows = corrected_rows(job.spec, some.filter(~gone), reader.records, direct=direct)
                if job.output.select is not None and len(rows):
                    rows = rows.hstack(analyser.selected(job, rows.select(ROW.names()).to_dicts()))
                withdrawn = reader.withdrawn(some.filter(gone))
                for made in (corrections_of(job.spec, job.output, rows, tag), withdrawals(withdrawn, tag)):
                    if not len(made):
                        continue
                    out = made.restamped(limits[topic], wall_ms())
                    refusals = [*select_failures(out.rows), *too_large(out, limits[topic])]
                    out = out.where(not_refused(len(out), refusals))
                    if len(out):
                        writing.write(topic, out)
                        written.update(out.rows["why"].to_list())
                    refused += len(made) - len(out)
    writing.commit(written.total(), done=True, reached="")
    return written, refused


def with_corrects(some: pl.DataFrame) -> pl.DataFrame:
    """Adds, as text, which row of the output each correction replaces."""
    names = {"left": "lpos", "right": "old"}
    text = pl.concat_str(*(_text(names[side]) for side in names), separator=" ")
    return some.with_columns(corrects=text)


def _text(position: str) -> pl.Expr:
    return pl.concat_str(*_spot(position), separator=":").fill_null("-")


def _spot(position: str) -> tuple[pl.Expr, pl.Expr]:
    """Returns partition and offset, as `spot_of`."""
    return pl.col(position) // (1 << SHIFT), pl.col(position) % (1 << SHIFT)


def corrected_rows(spec: JoinSpec, wanted: pl.DataFrame, read: Read, *, direct: bool) -> pl.DataFrame:
    """Returns the rows (`joins.rows.frames.ROW`) that the join makes from all records, with what `wanted` adds.

    wanted   rows of the table `corrections`, with `corrects`

    Raises `DataLoss` if their records are gone.
    """
    of_left = wanted.filter(pl.col("lpos").is_not_null())
    alone = wanted.filter(pl.col("lpos").is_null())
    said = wanted.select("lpos", "rpos", "had", "corrects", "why")

    def only(rows: pl.DataFrame) -> pl.DataFrame:
        placed = rows.with_columns(lpos=_position("left_"), rpos=_position("right_"))
        return placed.join(said, on=["lpos", "rpos"], nulls_equal=True)

    made = [only(empty_rows())]
    if len(of_left):
        left = read("left", of_left["lpos"].unique())
        of_rows = left.select(lpos=_position()).join(
            of_left.unique("lpos"), on="lpos", how="left", maintain_order="left"
        )
        window = Window(spec.right, apart=direct, one_topic=spec.one_topic)
        rights = of_left["rpos"].drop_nulls().unique()
        if len(rights):
            right = read("right", rights)
            window.add(Slice.build(right, {}, hashes=key_hashes(right, apart=direct)))
        barred = np.where(of_rows["deleted"].to_numpy(), IS_DELETED, 0)
        made += map(only, Offer(left, of_rows["late"], window, barred).rows(EARLIEST_MS))
    if len(alone):
        right = read("right", alone["rpos"])
        late = right.select(rpos=_position()).join(alone, on="rpos", how="left", maintain_order="left")["late"]
        made.append(only(rows_about("right", right, Outcome.UNJOINED, EXPIRED, late)))
    rows = pl.concat(made)
    if len(rows) != len(wanted):
        raise DataLoss(
            f"{len(wanted) - len(rows)} rows cannot be rebuilt: their records in {spec.left.topic} or "
            f"{spec.right.topic} are gone, or are read differently now. Run it again with a later --from"
        )
    return rows


def _position(side: str = "") -> pl.Expr:
    return pl.col(f"{side}partition").cast(pl.Int64) * (1 << SHIFT) + pl.col(f"{side}offset")


def corrections_of(spec: JoinSpec, output: Output, rows: pl.DataFrame, tag: BatchTag) -> Outgoing:
    """Returns the records of `corrected_rows`."""
    out = outgoing_results(spec, output, rows, tag)
    return replace(out, plan=(*out.plan, *SAYS))


def withdrawals(withdrawn: pl.DataFrame, tag: BatchTag) -> Outgoing:
    """Returns records without a value that withdraw rows."""
    plan = (provenance(tag, left=HAS_LEFT, right=HAS_RIGHT), TextHeader(OUTCOME, (TextPiece(WITHDRAWN),)), *SAYS)
    columns: dict[str, pl.Expr] = {"value": pl.lit(None, pl.Binary)}
    for side, name in (("left", "lpos"), ("right", "rpos")):
        partition, offset = _spot(name)
        columns[f"{side}_partition"], columns[f"{side}_offset"] = partition.cast(pl.Int32), offset
        columns[f"has_{side}"] = pl.col(name).is_not_null()
    return Outgoing(withdrawn.with_columns(**columns), "key", "value", plan, "time")


class Reader:
    """Reads single records.

    written   the output topic (False) and that of the corrections (True)
    """

    def __init__(self, job: JoinJob, written: dict[bool, str]) -> None:
        self._job, self._written = job, written

    def records(self, name: str, positions: pl.Series) -> pl.DataFrame:
        """Returns records of a side (`Read`)."""
        spec = self._job.spec
        side = spec.side(name)
        reader = SideReader(side, committed_only(spec.kafka), spec.registry)
        parts = []
        for p, spans in runs_of(positions).items():
            for start, end in spans:
                for batch in reader.read(p, start, end):
                    # They took part before: none is from the future.
                    parts.append(parse(name, side, batch, LATEST_MS // 2, spec.max_future_skew_ms, EARLIEST_MS).records)
        records = pl.concat(parts) if parts else pl.DataFrame(schema=RECORD)
        return records.filter(records.select(at=_position())["at"].is_in(positions.implode()))

    def withdrawn(self, some: pl.DataFrame) -> pl.DataFrame:
        """Returns these corrections with `key` and `time` of the rows that they withdraw."""
        kafka = committed_only(self._job.written_with)
        frames = [some.clear().with_columns(key=pl.lit(None, pl.Binary), time=pl.lit(None, pl.Int64))]
        for corrected, topic in self._written.items():
            of = some.filter(pl.col("corrected") == corrected)
            for p, spans in runs_of(of["spot"]).items():
                for start, end in spans:
                    for batch in open_reader(topic, kafka).read(p, start, end):
                        read = {"spot": spots_in(batch), "key": batch.column("key"), "time": batch.column("timestamp")}
                        frame = pl.DataFrame({name: pl.Series(column) for name, column in read.items()})
                        frames.append(of.join(frame.cast({"key": pl.Binary}), on="spot"))
        return pl.concat(frames)
