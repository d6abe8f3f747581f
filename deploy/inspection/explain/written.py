"""What a join has written about a record: its rows in the output, and copies in side topics.

A row's header `teacup` names the positions of both records, so the row is found by them, whatever the form of its
value. A row's time is that of its left record: the search begins where this time begins according to the output's time
index, and ends after the rows of the record's batch, whose number is in the header. Copies are found the same way.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from deploy.inspection.explain.inputs import CHUNK, Budget
from deploy.inspection.explain.model import RowsFound, Written
from deploy.jobfile.job import JoinJob
from deploy.output.ours import copies_of_others, rows_of_others, texts_in
from joins.explain import Position
from joins.outcome import Outcome
from teacup.kafka.client import committed_only
from teacup.kafka.delivery.provenance import BatchTag, positions_in, provenance_of, tags_in
from teacup.kafka.headers import LATE, OUTCOME, REASON
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.topic_log import begins_of
from teacup.kafka.read.range_reader import RangeReader


class WrittenTopic:
    """The output, or a side topic.

    origins   of the job's rows and copies; None if those of copies are not known
    """

    def __init__(self, job: JoinJob, topic: str, budget: Budget, origins: Collection[str] | None) -> None:
        self.topic, self._budget = topic, budget
        of_join = (job.spec.left.topic, job.spec.right.topic)
        self._origins, self._topics = origins, None if job.output.select is not None else of_join
        kafka = committed_only(job.written_with)
        self._log, self._reader = BrokerLog(topic, kafka), RangeReader(topic, kafka)
        self.ends = self._log.ends()

    def close(self) -> None:
        """Closes the clients."""
        self._log.close()
        self._reader.close()

    def about(
        self,
        side: str,
        position: Position,
        from_ms: int,
        *,
        ends: Ended | None = None,
        source: str | None = None,
        first: Sequence[int] = (),
    ) -> RowsFound:
        """Finds what is written about a record of a side.

        from_ms   no record about it has an earlier time
        ends      tells where no more rows can follow; None: the search ends with the first one found
        source    the topic that copies name; None: rows, which name none
        first     the partitions to look at first; the others only if nothing is there
        """
        starts = begins_of(self._log, self.ends, from_ms)
        gone = any(0 < self.ends[p].start == at for p, at in starts.items())
        rows: list[Written] = []
        offsets = unread = 0
        ranked = [[p for p in first if p in starts], [p for p in starts if p not in first]]
        for partitions in ranked:
            if rows:
                break
            for p in partitions:
                end = min(self.ends[p].stable, starts[p] + max(self._budget.most - offsets, 0))
                some, read, whole = self._partition(p, (starts[p], end), side, position, source, ends)
                rows, offsets = rows + some, offsets + read
                unread += 0 if whole else self.ends[p].stable - end
        return RowsFound(tuple(rows), offsets, 0 if rows else unread, gone and not rows)

    def _partition(
        self,
        partition: int,
        span: tuple[int, int],
        side: str,
        position: Position,
        source: str | None,
        ends: Ended | None,
    ) -> tuple[list[Written], int, bool]:
        """Returns what was found, how many offsets were read, and whether nothing about the record can follow."""
        wanted = f"{position[0]}:{position[1]}"
        rows: list[Written] = []
        start, end = span
        with closing(self._reader.read(partition, start, end, CHUNK)) as batches:
            for batch in batches:
                self._budget.spent(batch.num_rows, self.topic)
                provenance = provenance_of(batch.column("headers"))
                here = (provenance[side] == wanted).fill_null(value=False)
                others = (
                    rows_of_others(batch, self._origins or (), self._topics)
                    if source is None
                    else copies_of_others(batch, self._origins, (source,))
                )
                if others is not None:
                    here &= ~pl.Series(others)
                for row in here.arg_true().to_list():
                    rows.append(_written(self.topic, batch.slice(row, 1)))
                last = batch.column("offset")[-1].as_py() + 1
                if (rows and (ends is None or ends.number is None)) or (ends is not None and ends.behind(provenance)):
                    return rows, last - start, True
        return rows, end - start, end >= self.ends[partition].stable


@dataclass(frozen=True, slots=True)
class Ended:
    """Knows which rows of the output come after all rows about a left record.

    origin   of this checkpoint's rows; number: of the record's batch, None if not known
    direct   direct path, or lookup join: the rows about a partition of left are in the order of its records
    """

    origin: str | None
    number: int | None
    position: Position
    direct: bool

    def behind(self, provenance: pl.DataFrame) -> bool:
        """Returns whether such a row is among those with these headers (`provenance_of`)."""
        tags, lefts = tags_in(provenance["batch"]), positions_in(provenance["left"])
        ours = (tags["origin"] == self.origin).fill_null(value=False)
        if self.number is not None and (ours & (tags["number"] > self.number)).any():
            return True
        same = (lefts["partition"] == self.position[0]).arg_true()
        if not self.direct or not len(same):
            return False
        last = int(same[-1])
        return bool(ours[last]) and (lefts["offset"][last] or -1) > self.position[1]


def _written(topic: str, row: pa.RecordBatch) -> Written:
    outcome, reason = _header(row, OUTCOME), _header(row, REASON)
    provenance = provenance_of(row.column("headers"))
    left, right = (_position(provenance[side]) for side in ("left", "right"))
    batch = provenance["batch"][0]
    if outcome is None:
        alone = Outcome.UNJOINED if left is None else Outcome.UNMATCHED
        outcome = alone if right is None or left is None else Outcome.MATCHED
        reason = _reason(row.column("value")[0].as_py())
    return Written(
        topic=topic,
        partition=row.column("partition")[0].as_py(),
        offset=row.column("offset")[0].as_py(),
        left=left,
        right=right,
        batch=None if batch is None else BatchTag.parse(batch),
        late=_header(row, LATE) == "true",
        outcome=outcome,
        reason=reason,
    )


def _reason(value: bytes | None) -> str | None:
    """Returns the reason in an envelope; None for any other value."""
    try:
        envelope = json.loads(value or b"")
        return str(envelope["reason"]) if envelope["reason"] is not None else None
    except (ValueError, KeyError, TypeError):
        return None


def _header(row: pa.RecordBatch, name: str) -> str | None:
    text: str | None = texts_in(row.column("headers"), name)[0]
    return text


def _position(texts: pl.Series) -> Position | None:
    partition, offset = positions_in(texts).row(0)
    return None if partition is None else (partition, offset)
