"""Which left records have a row in the output, by the header of each row (`teacup.kafka.delivery.provenance`).

A position identifies a left record only together with the job that wrote the row, as another job may write rows about
another left topic. So rows must be of known generations; a row of an unknown one about an offset that will be read
again is refused. All of the output is read, as the rows of a batch have no bound in time.

Rows that retention has deleted would count as missing. Each output partition has rows in the order of their batches, so
its deleted rows are of batches up to that of its first row. All rows about a left partition from an offset on are of
batches not before that of the last row before the offset. If the former all precede the latter, nothing is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from deploy.checkpoint.past import left_from
from deploy.errors import ForeignRow
from deploy.jobfile.job import JoinJob
from deploy.output.kept import Offsets, RowsToKeep, of_right
from joins.errors import DataLoss
from joins.plan.log_checks import is_compacted
from joins.spec import JoinType
from teacup.kafka.client import committed_only
from teacup.kafka.delivery.provenance import BatchTag, positions_in, provenance_of, tags_in
from teacup.kafka.headers import PROVENANCE
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.losses import CONTINUE
from teacup.kafka.log.point_reader import wait_until_readable
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.records.record import last_header

OPEN_TRANSACTION_S = 120.0
_REMEDY = "write them again (`--written again`), or to another topic (`--into`)"

Batch = tuple[int, int]
"""The order of batches: the generation's place, and the batch's number."""


def rows_in_output(
    job: JoinJob,
    first: Mapping[int, int],
    generations: Sequence[str],
    *,
    time_ms: int,
    again: bool = False,
) -> RowsToKeep:
    """Finds the left records from these offsets on that have a row; of a join of the type `full`, right ones as well.

    generations   those that wrote rows of this job, in their order
    time_ms       none of those left records is below it, but late ones
    again         of right, only those count that rows about left records before `first` name

    Raises `ForeignRow`, `DataLoss` (the latter not if the join continues after a loss, `on_data_loss`), `KafkaIOError`.
    """
    topic, kafka = job.output.topic, committed_only(job.written_with)
    origins = [BatchTag.of(job.spec.name, generation, 0).origin for generation in generations]
    of_records = _RowsOfRecords(topic, first, origins, _since(job, first, time_ms))
    with closing(BrokerLog(topic, kafka)) as log, closing(RangeReader(topic, kafka)) as reader:
        if is_compacted(log.config()):
            raise DataLoss(
                f"output topic {topic!r} is compacted: rows that are missing there may have been written; {_REMEDY}"
            )
        ends = wait_until_readable(log, log.ends(), OPEN_TRANSACTION_S)
        for q, end in ends.items():
            for rows in _rows(topic, reader, q, end.start, end.stable):
                of_records.take(q, rows)
                if job.spec.right.type is JoinType.FULL:
                    of_records.take_right(rows, again=again)
    cut = [q for q, end in ends.items() if end.start > 0]
    if job.spec.on_data_loss != CONTINUE:
        of_records.check_whole(cut)
    begins = {p: min(int(some.min()) for some in of) for p, of in of_records.offsets.items() if p < 0}
    return RowsToKeep.of({p: np.concatenate(some) for p, some in of_records.offsets.items()}, {**first, **begins})


def _since(job: JoinJob, first: Mapping[int, int], time_ms: int) -> Mapping[int, int]:
    """Returns the left offsets whose rows matter: of the type `full` those that share a right record with others."""
    if job.spec.right.type is not JoinType.FULL:
        return first
    earlier = left_from(job, time_ms - job.spec.span_ms)
    return {p: min(earlier.get(p, 0), offset) for p, offset in first.items()}


@dataclass(slots=True)
class _RowsOfRecords:
    """Which records have a row, by what was read so far.

    since     by left partition, the first offset whose rows matter
    offsets   by left partition (and `of_right`), the offsets of records that have a row
    before    by left partition, offset and batch of the last row before `since`
    begins    by output partition, the batch of its first row
    """

    topic: str
    first: Mapping[int, int]
    origins: Sequence[str]
    since: Mapping[int, int]
    offsets: dict[int, list[Offsets]] = field(default_factory=lambda: defaultdict(list))
    before: dict[int, tuple[int, Batch]] = field(default_factory=dict)
    begins: dict[int, Batch] = field(default_factory=dict)

    def take(self, output_partition: int, rows: pl.DataFrame) -> None:
        """Takes rows of an output partition, in their order. Raises `ForeignRow`."""
        order = {origin: i for i, origin in enumerate(self.origins)}
        rows = rows.filter(pl.col("partition").is_in([*self.first])).with_columns(
            first=pl.col("partition").replace_strict(self.first, return_dtype=pl.Int64),
            generation=pl.col("origin").replace_strict(order, default=None, return_dtype=pl.Int64),
        )
        ours = rows.filter(pl.col("generation").is_not_null() & pl.col("number").is_not_null())
        if output_partition not in self.begins and len(ours):
            self.begins[output_partition] = ours.select("generation", "number").row(0)
        again = rows.filter(pl.col("offset") >= pl.col("first"))
        self._check_known(again)
        for (p,), some in again.group_by("partition"):
            self.offsets[_int(p)].append(some["offset"].unique().to_numpy())
        since = pl.col("partition").replace_strict(self.since, default=0, return_dtype=pl.Int64)
        for (p,), some in ours.filter(pl.col("offset") < since).group_by("partition"):
            offset, *batch = some.sort("offset").select("offset", "generation", "number").row(-1)
            self.before[_int(p)] = max(self.before.get(_int(p), (-1, (0, 0))), (offset, (batch[0], batch[1])))

    def take_right(self, rows: pl.DataFrame, *, again: bool) -> None:
        """Takes the right records that rows name."""
        rows = rows.filter(pl.col("right_partition").is_not_null() & pl.col("origin").is_in(self.origins))
        if again:
            first = pl.col("partition").replace_strict(self.first, default=0, return_dtype=pl.Int64)
            rows = rows.filter(pl.col("offset") < first)
        for (p,), some in rows.group_by("right_partition"):
            self.offsets[of_right(_int(p))].append(some["right_offset"].unique().to_numpy())

    def _check_known(self, again: pl.DataFrame) -> None:
        foreign = again.filter(pl.col("generation").is_null())
        if len(foreign):
            p, offset, origin = foreign.select("partition", "offset", "origin").row(0)
            whose = "names no batch" if origin is None else f"is of origin {origin}"
            raise ForeignRow(
                f"a row of output topic {self.topic!r} about left record {p}:{offset} {whose}. It is not known to be "
                f"of this checkpoint, so which rows are missing is not known either: {_REMEDY}"
            )

    def check_whole(self, cut: Sequence[int]) -> None:
        """Raises `DataLoss` if rows of interest may have been deleted; cut: the output partitions that lost any."""
        batches = [batch for _, batch in self.before.values()] if self.before.keys() == self.since.keys() else []
        lost = [q for q in cut if not batches or q not in self.begins or self.begins[q] >= min(batches)]
        if lost:
            raise DataLoss(
                f"retention has deleted rows of partitions {lost} of output topic {self.topic!r} that may be about "
                "records from this time on: they would count as missing. Give a later time, or accept that these "
                f"are written again (`--set on_data_loss=continue`); or {_REMEDY}"
            )


def _rows(topic: str, reader: RangeReader, partition: int, start: int, end: int) -> Iterator[pl.DataFrame]:
    """Yields the left position of each row (`partition`, `offset`), its right one (`right_…`), and its batch
    (`origin`, `number`).

    A record without the header is another program's, and about no left record. Raises `ForeignRow` for one that has it,
    but of another form: it may be a row of another version.
    """
    for batch in reader.read(partition, start, end):
        headers = batch.column("headers")
        written = provenance_of(headers)
        no_position = written["left"].is_null() & written["right"].is_null()
        unreadable = pl.Series(last_header(headers, PROVENANCE).is_valid()) & no_position
        if unreadable.any():
            offset = batch.column("offset")[unreadable.arg_max() or 0]
            raise ForeignRow(
                f"the record at {topic}-{partition} offset {offset} has a header {PROVENANCE!r} that this version "
                "does not write to an output: which left record it is about is not known, so which rows are missing is "
                f"not known either: {_REMEDY}"
            )
        right = positions_in(written["right"]).rename(lambda name: f"right_{name}")
        yield pl.concat([positions_in(written["left"]), right, tags_in(written["batch"])], how="horizontal")


def _int(partition: object) -> int:
    assert isinstance(partition, int)
    return partition
