"""Delivery: a function for `mapInArrow` from rows of the join to one summary row a bucket.

    matched, unmatched   -> the output topic (envelope or `select`); unmatched also to a topic of its own
    unjoined, late, dead_letter -> topics of their own, the record as it was read, with where it stood and why

Headers: `teacup.left` and `teacup.right` hold partition:offset of the two records, `teacup.batch` (at least once) which
batch of which job wrote the row (`dedup.batchtag`), `teacup.late` is set on late ones, and the side topics have
`teacup.outcome`, `teacup.reason` and, for dead letters, `teacup.topic`.

A bucket's rows are durable (`kafkaio.delivery`: in transactions with its receipt, or acknowledged) before its summary
row goes back. Whatever fails, fails the task, and Spark runs it again: the rows are the same, in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dedup.batchtag import BATCH, BatchTag
from dedup.hashing import Mask
from dedup.identity import ID, LEFT, Identity, Within
from dedup.spark import current_attempt
from dedup.worker import Setup, discard_deduplicator, open_deduplicator
from deploy.accounts import Accounts
from deploy.envelope import envelopes
from deploy.job import Deduplicate, Output
from joins.lookup.spec import LookupSpec
from joins.spec import JoinError, JoinSpec, Policy
from joins.window.records import SIDE_COLUMNS
from joins.window.stage import SUMMARY, TICKET
from kafkaio.delivery import AtLeastOnce, Delivery, ExactlyOnce
from kafkaio.fenced import Bucket
from kafkaio.gcpause import no_garbage_collection
from kafkaio.rangereader import HEADERS
from kafkaio.receipt import Standing

Batches = Iterator[pa.RecordBatch]
SUMMARY_SCHEMA = "summary string"


class NoDeadLetterTopic(JoinError):
    """A record cannot take part in the join, and there is no topic to put it aside in."""


def deliver_stage(
    spec: JoinSpec, output: Output, setup: Setup | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """Rows (`records.ROW`, and `out_key`, `out_value`, `out_headers` of a `select`) -> summaries as JSON text.

    The rows of a ticket stand between a row with the outcome `TICKET` and one with the outcome `SUMMARY`.
    setup   of the deduplicator; what it drops is kept from the output topic only, copies for side topics are repeated
    """

    def deliver(batches: Iterable[pa.RecordBatch]) -> Batches:
        bucket: BucketSink | None = None
        try:
            for rows in _split(batches):
                outcome = rows["outcome"][0]
                if outcome == TICKET:
                    bucket = BucketSink(spec, output, json.loads(rows["reason"][0]), setup)
                elif bucket is None:
                    raise JoinError(f"rows of outcome {outcome!r} came before their ticket: this is a defect")
                elif outcome == SUMMARY:
                    summary = json.loads(rows["reason"][0])
                    summary = bucket.close(summary, summary["read"]["left"])
                    bucket = None
                    yield pa.record_batch({"summary": [json.dumps(summary)]})
                else:
                    with no_garbage_collection():  # keys, values and headers are a million objects, all alive at once
                        bucket.take(rows)
        finally:
            if bucket is not None:  # something failed, or nobody wants the rest
                bucket.abandon()

    return deliver


def _split(batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    """Frames in which a row about a ticket stands alone, in the order in which they came."""
    for batch in batches:
        rows = pl.DataFrame(pl.from_arrow(batch))
        start = 0
        for at in rows["outcome"].is_in([TICKET, SUMMARY]).arg_true().to_list():
            if at > start:
                yield rows[start:at]
            yield rows[at : at + 1]
            start = at + 1
        if start < len(rows):
            yield rows[start:]


class BucketSink:
    """Delivers the rows of one ticket, and keeps its accounts: they must add up before anything counts."""

    def __init__(self, spec: JoinSpec, output: Output, ticket: Mapping[str, Any], setup: Setup | None = None) -> None:
        self._spec, self._output = spec, output
        kafka = {**spec.kafka, **output.kafka}
        bucket = Bucket(spec.name, ticket["bucket"], output.topic)
        self._delivery: Delivery = (
            ExactlyOnce(kafka, bucket, ticket["generation"], ticket["number"], in_parts=_repeats(spec))
            if output.exactly_once
            else AtLeastOnce(kafka)
        )
        self._accounts = Accounts(str(bucket))
        self._written: dict[str, int] = {}  # by topic, since the last commit
        self._reached = ""
        self._found: Standing | None = None  # before this attempt wrote anything
        self._batch = BatchTag.of(spec.name, ticket["generation"], ticket["number"])
        self._setup = setup
        self._deduplicator = None if setup is None else open_deduplicator(setup)
        try:
            self._filters = self._deduplicator is not None and self._deduplicator.begin(
                current_attempt(), ticket["left_since_ms"], self._batch
            )
        except BaseException:
            self.abandon()
            raise

    def take(self, rows: pl.DataFrame) -> None:
        """Write those of the rows that are not in yet."""
        before = self._accounts.received
        self._accounts.receive(rows)
        self._reached = _about(rows[-1])
        standing = self._delivery.standing()
        if self._found is None:
            self._found = standing
        if standing.done:
            return
        skip = max(standing.rows - before, 0)
        if 0 < skip <= len(rows):
            standing.check_reached(_about(rows[skip - 1]), self._accounts.bucket)
        if skip >= len(rows):
            return
        had_results = self._accounts.results
        self._route(rows[skip:])
        # All of right may have to be read, or a store to answer, before a result follows what is put aside.
        gap = self._accounts.results == had_results and (had_results == 0 or isinstance(self._spec, LookupSpec))
        if self._delivery.part_is_full(gap=gap):
            self._commit(done=False)

    def close(self, summary: dict[str, Any], lefts_read: int) -> dict[str, Any]:
        """Check the accounts and make the last rows durable; the summary with the rows sent, by topic."""
        self._accounts.check_joined(lefts_read, sum(summary["rows"].values()))
        found = self._found or self._delivery.standing()
        if not found.done and self._accounts.received < found.rows:
            found.check_reached("no record", self._accounts.bucket)
        summary["sent"] = dict(self._commit(done=True))
        if self._deduplicator is not None:
            self._deduplicator.durable()
            summary["deduplicator"] = self._deduplicator.report()
        summary["delivered_before"] = self._accounts.received if found.done else found.rows
        return summary

    def abandon(self) -> None:
        self._delivery.abandon()
        if self._setup is not None:
            discard_deduplicator(self._setup)

    def _commit(self, *, done: bool) -> Mapping[str, int]:
        self._accounts.check_written()
        sent = self._delivery.commit(self._accounts.received, self._written, done=done, reached=self._reached)
        self._written = {}
        return sent

    def _write(self, topic: str, keys: Any, values: Any, headers: Any, timestamps: pl.Series) -> int:
        count = self._delivery.write(topic, keys, values, headers, timestamps.to_list())
        self._written[topic] = self._written.get(topic, 0) + count
        return count

    def _fresh(self, results: pl.DataFrame) -> Mask:
        """Which results are not in the output yet."""
        assert self._deduplicator is not None
        assert self._output.deduplicate is not None
        asked = self._output.deduplicate
        identity = identity_of(self._spec, asked)
        ids = identity.of_positions(results) if identity.by_position else _header_ids(identity, results)
        return self._deduplicator.keep(identity.in_batch(ids, self._batch))

    def _route(self, rows: pl.DataFrame) -> None:
        spec, output = self._spec, self._output
        main = rows["outcome"].is_in(["matched", "unmatched"])
        results = rows if main.all() else rows.filter(main)
        accounts = self._accounts
        if len(results):
            accounts.results += len(results)
            keys, values, more = _output_of(spec, output, results)
            headers = _position_headers(results, more, None if output.exactly_once else self._batch)
            if self._filters:
                fresh = self._fresh(results)
                accounts.dropped += int(np.count_nonzero(~fresh))
                if fresh.any():
                    some = np.flatnonzero(fresh)
                    new_keys, new_values, new_headers = ([c[i] for i in some] for c in (keys, values, headers))
                    times = results["left_time"].filter(pl.Series(fresh))
                    accounts.written += self._write(output.topic, new_keys, new_values, new_headers, times)
            else:
                accounts.written += self._write(output.topic, keys, values, headers, results["left_time"])
            if output.unmatched is not None:
                at = results["outcome"] == "unmatched"
                picked = at.arg_true().to_list()
                keys, values, headers = ([column[i] for i in picked] for column in (keys, values, headers))
                self._write(output.unmatched, keys, values, headers, results["left_time"].filter(at))
        if not main.all():
            _write_aside(spec, output, rows.filter(~main), self._write)
        if output.late is not None and (late := results["late"]).any():
            _write_records(spec, "left", output.late, results.filter(late), self._write)


def _about(row: pl.DataFrame) -> str:
    """What a row is about, the same whenever its batch runs: a left record, or a right one that matched none."""
    side = "right" if row["left_offset"][0] is None else "left"
    return f"{side} {row[f'{side}_partition'][0]}:{row[f'{side}_offset'][0]}"


def _repeats(spec: JoinSpec) -> bool:
    """Whether a batch that runs again surely has as many rows, about the same left records in the same order.

    With every policy but `all` a left record has one row, whatever right records have come late to a store meanwhile.
    """
    return not (isinstance(spec, LookupSpec) and spec.policy is Policy.ALL)


def identity_of(spec: JoinSpec, asked: Deduplicate) -> Identity:
    """What identifies a result in the output topic.

    A replay of a lookup join may find another right record, or one where there was none. With every policy but `all`
    a left record has one row, so that its position alone is the id; within its batch, as no other batch has the row.
    """
    if asked.expression is not None:
        return Identity(ID, within=Within.BATCH)
    return Identity(asked.header or (None if spec.policy is Policy.ALL else LEFT), within=Within.BATCH)


def _header_ids(identity: Identity, results: pl.DataFrame) -> pl.Series:
    headers = results["out_headers"].to_arrow()
    return identity.of_headers(headers.cast(HEADERS))


def _output_of(spec: JoinSpec, output: Output, rows: pl.DataFrame) -> tuple[list[Any], list[Any], list[Any] | None]:
    if output.select is None:
        return rows["key"].to_list(), envelopes(spec, rows).to_list(), None
    return rows["out_key"].to_list(), rows["out_value"].to_list(), rows["out_headers"].to_list()


def _position_headers(rows: pl.DataFrame, more: list[Any] | None, batch: BatchTag | None) -> list[Any]:
    """Where both records stood, which batch writes the row, and what the `select` adds."""
    positions = rows.select(
        left=pl.format("{}:{}", "left_partition", "left_offset"),
        right=pl.format("{}:{}", "right_partition", "right_offset"),
    )
    left, right = positions["left"].to_list(), positions["right"].to_list()
    tag = () if batch is None else ((BATCH, str(batch)),)  # one pair for all rows
    headers: list[Any] = [
        [("teacup.left", a), *tag] if b is None else [("teacup.left", a), ("teacup.right", b), *tag]
        for a, b in zip(left, right, strict=True)
    ]
    if rows["late"].any():
        for i in rows["late"].arg_true().to_list():
            headers[i].append(("teacup.late", "true"))
    if more is not None:
        for own, added in zip(headers, more, strict=True):
            own.extend((one["key"], one["value"]) for one in added or ())
    return headers


Write = Callable[[str, Any, Any, Any, pl.Series], int]


def _write_aside(spec: JoinSpec, output: Output, rows: pl.DataFrame, write: Write) -> None:
    """Rows that are about one record only: each outcome to its topic, as far as one is named."""
    for (outcome,), some in rows.group_by("outcome", maintain_order=True):
        topic = {"dead_letter": output.dead_letter, "late": output.late, "unjoined": output.unjoined}[str(outcome)]
        for side in ("left", "right"):
            about = some.filter(pl.col(f"{side}_offset").is_not_null())
            if not len(about):
                continue
            if topic is not None:
                _write_records(spec, side, topic, about, write)
            elif outcome == "dead_letter":
                name = spec.left.topic if side == "left" else spec.right.topic
                first = about.row(0, named=True)
                raise NoDeadLetterTopic(
                    f"{len(about)} records of {name!r} cannot take part, the first at partition "
                    f"{first[f'{side}_partition']} offset {first[f'{side}_offset']} ({first['reason']}): "
                    "name a dead-letter topic (`topics.dead_letter`), or mend the producer"
                )


def _write_records(spec: JoinSpec, side: str, topic: str, rows: pl.DataFrame, write: Write) -> None:
    """The records of one side as they were read, with headers that say where they stood and why they are here."""
    name = spec.left.topic if side == "left" else spec.right.topic
    columns = {column: rows[f"{side}_{column}"].to_list() for column in SIDE_COLUMNS}
    headers = [
        [
            *((one["key"], one["value"]) for one in own or ()),
            ("teacup.topic", name),
            (f"teacup.{side}", f"{partition}:{offset}"),
            ("teacup.outcome", outcome),
            *([("teacup.reason", reason)] if reason else ()),
            *([("teacup.late", "true")] if late else ()),
        ]
        for own, partition, offset, outcome, reason, late in zip(
            columns["headers"],
            columns["partition"],
            columns["offset"],
            rows["outcome"].to_list(),
            rows["reason"].to_list(),
            rows["late"].to_list(),
            strict=True,
        )
    ]
    times = pl.Series([max(time, 0) if time is not None else 0 for time in columns["time"]])
    write(topic, rows["key"].to_list(), columns["value"], headers, times)
