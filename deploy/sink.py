"""Delivery, at least once: a function for `mapInArrow` from rows of the join to one summary row a bucket.

    matched, unmatched   -> the output topic (envelope or `select`); unmatched also to a topic of its own
    unjoined, late, dead_letter -> topics of their own, the record as it was read, with where it stood and why

Headers: `teacup.left` and `teacup.right` hold partition:offset of the two records, `teacup.late` is set on late ones,
and the side topics have `teacup.outcome`, `teacup.reason` and, for dead letters, `teacup.topic`.

A bucket's rows are acknowledged by the brokers before its summary row goes back; rows read, sent and acknowledged
must add up. Whatever fails, fails the task, and Spark runs it again: the rows are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from deploy.envelope import envelopes
from deploy.job import Output
from joins.spec import JoinError, JoinSpec
from joins.window.records import SIDE_COLUMNS
from joins.window.stage import SUMMARY
from kafkaio.errors import KafkaIOError
from kafkaio.gcpause import no_garbage_collection
from kafkaio.writer import discard_writer, open_writer

Batches = Iterator[pa.RecordBatch]
SUMMARY_SCHEMA = "summary string"


class NoDeadLetterTopic(JoinError):
    """A record cannot take part in the join, and there is no topic to put it aside in."""


@dataclass(slots=True)
class Sent:
    """What became of one bucket's rows, by topic."""

    received: int = 0
    routed: dict[str, int] = field(default_factory=dict)


def deliver_stage(spec: JoinSpec, output: Output) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """Rows (`records.ROW`, and `out_key`, `out_value`, `out_headers` of a `select`) -> summaries as JSON text."""
    kafka = {**spec.kafka, **output.kafka}

    def deliver(batches: Iterable[pa.RecordBatch]) -> Batches:
        sent = Sent()
        try:
            for batch in batches:
                rows = pl.DataFrame(pl.from_arrow(batch))
                results = rows.filter(pl.col("outcome") != SUMMARY)
                if len(results):
                    with no_garbage_collection():  # keys, values and headers are a million objects, all alive at once
                        _route(spec, output, kafka, results, sent)
                for text in rows.filter(pl.col("outcome") == SUMMARY)["reason"]:
                    yield _acknowledged(kafka, json.loads(text), sent)
                    sent = Sent()
        except KafkaIOError:
            discard_writer(kafka)
            raise

    return deliver


def _acknowledged(kafka: Mapping[str, str], summary: dict[str, Any], sent: Sent) -> pa.RecordBatch:
    """Wait for the brokers, check the accounts, and close them."""
    delivered = open_writer(kafka).flush()
    joined = sum(summary["rows"].values())
    routed = sum(sent.routed.values())
    if joined != sent.received or delivered.sent != routed or delivered.acknowledged != routed:
        raise JoinError(
            f"bucket {summary['bucket']}, batch {summary['number']}: {joined} rows joined, {sent.received} received, "
            f"{routed} routed to topics, {delivered.sent} sent, {delivered.acknowledged} acknowledged; these must add "
            "up, and the batch is not committed"
        )
    summary["sent"] = sent.routed
    return pa.record_batch({"summary": [json.dumps(summary)]})


def _route(spec: JoinSpec, output: Output, kafka: Mapping[str, str], rows: pl.DataFrame, sent: Sent) -> None:
    writer = open_writer(kafka)
    sent.received += len(rows)

    def write(topic: str, keys: Any, values: Any, headers: Any, timestamps: pl.Series) -> None:
        sent.routed[topic] = sent.routed.get(topic, 0) + writer.write(
            topic, keys, values, headers, timestamps.to_list()
        )

    outcome = rows["outcome"]
    main = outcome.is_in(["matched", "unmatched"])
    results = rows if main.all() else rows.filter(main)
    if len(results):
        keys, values, more = _output_of(spec, output, results)
        headers = _position_headers(results, more)
        write(output.topic, keys, values, headers, results["left_time"])
        if output.unmatched is not None:
            at = results["outcome"] == "unmatched"
            picked = at.arg_true().to_list()
            keys, values, headers = ([column[i] for i in picked] for column in (keys, values, headers))
            write(output.unmatched, keys, values, headers, results["left_time"].filter(at))
    if not main.all():
        _write_aside(spec, output, rows.filter(~main), write)
    if output.late is not None and (late := results["late"]).any():
        _write_records(spec, "left", output.late, results.filter(late), write)


def _output_of(spec: JoinSpec, output: Output, rows: pl.DataFrame) -> tuple[list[Any], list[Any], list[Any] | None]:
    if output.select is None:
        return rows["key"].to_list(), envelopes(spec, rows).to_list(), None
    return rows["out_key"].to_list(), rows["out_value"].to_list(), rows["out_headers"].to_list()


def _position_headers(rows: pl.DataFrame, more: list[Any] | None) -> list[Any]:
    """Where both records stood, and what the `select` adds."""
    positions = rows.select(
        left=pl.format("{}:{}", "left_partition", "left_offset"),
        right=pl.format("{}:{}", "right_partition", "right_offset"),
    )
    left, right = positions["left"].to_list(), positions["right"].to_list()
    headers: list[Any] = [
        [("teacup.left", a)] if b is None else [("teacup.left", a), ("teacup.right", b)]
        for a, b in zip(left, right, strict=True)
    ]
    if rows["late"].any():
        for i in rows["late"].arg_true().to_list():
            headers[i].append(("teacup.late", "true"))
    if more is not None:
        for own, added in zip(headers, more, strict=True):
            own.extend((one["key"], one["value"]) for one in added or ())
    return headers


Write = Callable[[str, Any, Any, Any, pl.Series], None]


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
