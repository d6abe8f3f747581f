"""Delivery: a function for `mapInArrow` from rows of the join to one summary row per bucket.

    matched, unmatched   -> the output topic (envelope or `select`); unmatched also to a topic of its own
    unjoined, late, dead_letter -> topics of their own: the record as it was read, with its position and the reason

The headers are those of `kafkaio.headers`; `deploy.output.copies` says which of them side topics get.

A row that cannot be written, because it is too large or an expression of the `select` fails on it, becomes a dead
letter; a time that a topic refuses goes into a header (`kafkaio.producible`). If no dead-letter topic is named, the
task does not fail but reports this in place of its summary: a retry could not help, and the driver ends the job.

A bucket's rows are durable (`kafkaio.delivery.delivery`: in transactions with its receipt, or acknowledged) before its
summary row goes back. Any failure fails the task, and Spark runs it again: the rows are the same, in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dedup.batchtag import BatchTag
from dedup.identity import Identity, Within
from dedup.restart.hashing import Mask
from dedup.restart.spark import current_attempt
from dedup.restart.worker import Setup, discard_deduplicator, open_deduplicator
from deploy.jobs.accounts import Accounts
from deploy.jobs.job import Deduplicate, Output
from deploy.output.copies import write_aside, write_copies, write_refused
from deploy.output.envelope import envelopes
from deploy.output.outgoing import Outgoing, Refusal
from deploy.output.selectsql import flattened
from joins.errors import JoinError, NoDeadLetterTopic
from joins.flavour import flavour_of
from joins.rows.chunks import in_chunks
from joins.spec import JoinSpec, Policy
from joins.window.stage import SUMMARY, TICKET
from kafkaio.delivery.delivery import AtLeastOnce, Delivery, ExactlyOnce
from kafkaio.delivery.fencing import OutputBucket
from kafkaio.delivery.receipt import Batch, Standing
from kafkaio.errors import RecordTooLarge
from kafkaio.gcpause import no_garbage_collection
from kafkaio.headers import BATCH, EXPRESSION, ID, LATE, LEFT, RIGHT
from kafkaio.messages import HEADERS
from kafkaio.now import wall_ms
from kafkaio.topiclimits import forget_limits, limits_of, within_limits
from sparkio.crossing import final

Batches = Iterator[pa.RecordBatch]
SUMMARY_SCHEMA = "summary string"


def deliver_stage(
    spec: JoinSpec, output: Output, setup: Setup | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """Rows (`records.ROW`, and `out_key`, `out_value`, `out_headers` of a `select`) -> summaries as JSON text.

    The rows of a ticket come between a row with the outcome `TICKET` and one with the outcome `SUMMARY`.
    setup   of the deduplicator; what it drops is missing from the output topic only, side topics get repeated copies
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
                    with no_garbage_collection():  # keys, values and headers: a million objects alive at once
                        bucket.take(rows)
        except (NoDeadLetterTopic, RecordTooLarge) as error:
            if bucket is not None:
                bucket.abandon()
                bucket = None
            yield pa.record_batch({"summary": [json.dumps(final(error))]})
        finally:
            if bucket is not None:  # something failed, or nobody reads the rest
                bucket.abandon()

    return deliver


def _split(batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    """Frames of bounded bytes, in order of arrival; a row about a ticket gets a frame of its own."""
    for batch in batches:
        rows = flattened(pl.DataFrame(pl.from_arrow(batch)))
        start = 0
        for at in rows["outcome"].is_in([TICKET, SUMMARY]).arg_true().to_list():
            yield from in_chunks(rows[start:at])
            yield rows[at : at + 1]
            start = at + 1
        yield from in_chunks(rows[start:])


class BucketSink:
    """Delivers the rows of one ticket, and keeps its accounts: they must add up before anything is committed."""

    def __init__(self, spec: JoinSpec, output: Output, ticket: Mapping[str, Any], setup: Setup | None = None) -> None:
        self._spec, self._output = spec, output
        self._kafka = {**spec.kafka, **output.kafka}
        topics = (output.topic, output.dead_letter, output.late, output.unmatched, output.unjoined)
        self._limits = limits_of(self._kafka, topics)
        kafka = within_limits(self._kafka, self._limits)
        bucket = OutputBucket(spec.name, ticket["bucket"], output.topic)
        batch = Batch(ticket["generation"], ticket["number"], ticket["digest"])
        self._delivery: Delivery = (
            ExactlyOnce(kafka, bucket, batch, in_parts=flavour_of(spec).repeats_in_order(spec))
            if output.exactly_once
            else AtLeastOnce(kafka)
        )
        self._accounts = Accounts(str(bucket))
        self._written: dict[str, int] = {}  # by topic, since the last commit
        self._refused: dict[str, int] = {}  # by reason
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
        """Write the rows that are not in the output yet."""
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
        # After rows for side topics, all of right may have to be read, or a store to answer, before a result follows.
        gap = self._accounts.results == had_results and (had_results == 0 or not flavour_of(self._spec).repeats_exactly)
        if self._delivery.part_is_full(gap=gap):
            self._commit(done=False)

    def close(self, summary: dict[str, Any], lefts_read: int) -> dict[str, Any]:
        """Check the accounts and make the last rows durable; returns the summary with the rows sent, by topic."""
        self._accounts.check_joined(lefts_read, sum(summary["rows"].values()))
        found = self._found or self._delivery.standing()
        if not found.done and self._accounts.received < found.rows:
            found.check_reached("no record", self._accounts.bucket)
        summary["sent"] = dict(self._commit(done=True))
        summary["refused"] = self._refused
        if self._deduplicator is not None:
            self._deduplicator.durable()
            summary["deduplicator"] = self._deduplicator.report()
        summary["delivered_before"] = self._accounts.received if found.done else found.rows
        return summary

    def abandon(self) -> None:
        self._delivery.abandon()
        forget_limits(self._kafka, self._limits)
        if self._setup is not None:
            discard_deduplicator(self._setup)

    def _commit(self, *, done: bool) -> Mapping[str, int]:
        self._accounts.check_written()
        sent = self._delivery.commit(self._accounts.received, self._written, done=done, reached=self._reached)
        self._written = {}
        return sent

    def _write(self, topic: str, out: Outgoing) -> int:
        count = self._delivery.write(topic, out.keys, out.values, out.headers, out.times.to_list(), out.size)
        self._written[topic] = self._written.get(topic, 0) + count
        return count

    def _write_copies(self, topic: str, copies: Outgoing, what: Callable[[int], str]) -> None:
        """Copies for a side topic: parts that it would refuse are left out, and a header says so."""
        limits = self._limits[topic]
        self._write(topic, copies.restamped(limits, wall_ms()).shortened(limits, what))

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
        if len(results):
            self._accounts.results += len(results)
            self._write_results(results)
        if not main.all():
            write_aside(spec, output, rows.filter(~main), self._write_copies)
        if output.late is not None and (late := results["late"]).any():
            write_copies(spec, "left", output.late, results.filter(late), self._write_copies)

    def _write_results(self, results: pl.DataFrame) -> None:
        output, accounts = self._output, self._accounts
        limits = self._limits[output.topic]
        results = self._without(results, _failed(results))
        tag = None if output.exactly_once else self._batch
        out = _output_of(self._spec, output, results, tag).restamped(limits, wall_ms())
        if refusals := out.refusals(limits):
            results, out = self._without(results, refusals), out.where(_others(len(results), refusals))
        if not len(results):
            return
        if self._filters:
            fresh = self._fresh(results)
            accounts.dropped += int(np.count_nonzero(~fresh))
            if fresh.any():
                accounts.written += self._write(output.topic, out.where(fresh))
        else:
            accounts.written += self._write(output.topic, out)
        if output.unmatched is not None:
            alone = (results["outcome"] == "unmatched").to_numpy()
            lefts = results.filter(pl.Series(alone))
            if len(lefts):
                self._write_copies(output.unmatched, out.where(alone), lambda i: f"the row about {_about(lefts[i])}")

    def _without(self, results: pl.DataFrame, refusals: list[Refusal]) -> pl.DataFrame:
        """The results without the refused ones, which become dead letters."""
        if not refusals:
            return results
        write_refused(self._spec, self._output, results, refusals, self._write_copies)
        self._accounts.refused += len(refusals)
        for one in refusals:
            self._refused[one.reason] = self._refused.get(one.reason, 0) + 1
        return results.filter(pl.Series(_others(len(results), refusals)))


def _others(count: int, refusals: list[Refusal]) -> Mask:
    """A mask of the rows that are not refused."""
    others = np.ones(count, np.bool_)
    others[[one.index for one in refusals]] = False
    return others


def _failed(results: pl.DataFrame) -> list[Refusal]:
    """The rows on which an expression of the `select` failed."""
    if "failed" not in results.columns or results["failed"].null_count() == len(results):
        return []
    return [
        Refusal(
            i,
            "select_failed",
            f"`output.select.{name}` fails on it",
            [(EXPRESSION, name)],
        )
        for i, name in enumerate(results["failed"].to_list())
        if name is not None
    ]


def _about(row: pl.DataFrame) -> str:
    """What a row is about, the same whenever its batch runs: a left record, or a right one that matched none."""
    side = "right" if row["left_offset"][0] is None else "left"
    return f"{side} {row[f'{side}_partition'][0]}:{row[f'{side}_offset'][0]}"


def identity_of(spec: JoinSpec, asked: Deduplicate) -> Identity:
    """What identifies a result in the output topic.

    A replay of a lookup join may find another right record, or one where there was none. With every policy but `all`
    a left record has one row, so its position alone is the id; within its batch, because no other batch has the row.
    """
    if asked.expression is not None:
        return Identity(ID, within=Within.BATCH)
    return Identity(asked.header or (None if spec.policy is Policy.ALL else LEFT), within=Within.BATCH)


def _header_ids(identity: Identity, results: pl.DataFrame) -> pl.Series:
    headers = results["out_headers"].to_arrow()
    return identity.of_headers(headers.cast(HEADERS))


def _output_of(spec: JoinSpec, output: Output, rows: pl.DataFrame, tag: BatchTag | None) -> Outgoing:
    if output.select is None:
        headers = _position_headers(rows, None, tag)
        return Outgoing.of(rows["key"], envelopes(spec, rows), headers, None, rows["left_time"])
    more = rows["out_headers"]
    headers = _position_headers(rows, more.to_list(), tag)
    return Outgoing.of(rows["out_key"], rows["out_value"], headers, more, rows["left_time"])


def _position_headers(rows: pl.DataFrame, more: list[Any] | None, batch: BatchTag | None) -> list[Any]:
    """The positions of both records, the batch that writes the row, and what the `select` adds."""
    positions = rows.select(
        left=pl.format("{}:{}", "left_partition", "left_offset"),
        right=pl.format("{}:{}", "right_partition", "right_offset"),
    )
    left, right = positions["left"].to_list(), positions["right"].to_list()
    tag = () if batch is None else ((BATCH, str(batch)),)  # one pair for all rows
    headers: list[Any] = [
        [(LEFT, a), *tag] if b is None else [(LEFT, a), (RIGHT, b), *tag] for a, b in zip(left, right, strict=True)
    ]
    if rows["late"].any():
        for i in rows["late"].arg_true().to_list():
            headers[i].append((LATE, "true"))
    if more is not None:
        for own, added in zip(headers, more, strict=True):
            own.extend((one["key"], one["value"]) for one in added or ())
    return headers
