"""What of the records that were read takes part, and what goes to the dead letters, with the reason. Pure.

no_time       the payload holds no time at the given path
future_time   the time is further ahead of the clock, or of the broker's append, than `max_future_skew`: it would
              move a frontier for ever
invalid_json  the topic is declared `json`, and the value is not
invalid_text  the topic is declared `text` (or `json`), and the value is not UTF-8
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from joins.spec import Format, Side
from joins.window.records import RECORD, rows_about
from kafkaio.duck import connection
from kafkaio.eventtime import ANY_SKEW_MS, TimeOf, ceilings, event_times, text_of, valid


@dataclass(frozen=True, slots=True)
class Intake:
    """records: in the schema of `records.RECORD`; late: one flag each; dead: rows of the others."""

    records: pl.DataFrame
    late: pl.Series
    dead: pl.DataFrame
    disorder_ms: int
    newest_ms: int | None


def take_in(
    name: str,
    side: Side,
    batch: pa.RecordBatch,
    ceiling_ms: int,
    progress_before_ms: int,
    newest_ms: int | None,
    skew_ms: int = ANY_SKEW_MS,
) -> Intake:
    """Sort one Arrow batch of one partition, in the schema of `kafkaio.rangereader`.

    name        "left" or "right"
    ceiling_ms  times above it are from the future
    newest_ms   the largest time known to precede the batch in its partition, to measure the disorder
    skew_ms     `max_future_skew`: how far above its append a time may lie
    """
    timestamps = batch.column("timestamp")
    times_read = event_times(TimeOf(side.time), timestamps, batch.column("value"))
    counts = valid(times_read, ceilings(timestamps, batch.column("timestamp_type"), ceiling_ms, skew_ms))
    frame = pl.DataFrame(pl.from_arrow(batch)).select(
        "partition", "offset", pl.Series("time", times_read), "key", "value", "headers"
    )
    reason = _reasons(frame, side, pl.Series(pl.from_arrow(counts)))
    dead = pl.DataFrame(schema=rows_about(name, frame.clear(), "", None, late=False).schema)
    if reason is not None:
        bad = reason.is_not_null()
        dead = rows_about(name, frame.filter(bad), "dead_letter", reason.filter(bad), late=False)
        frame = frame.filter(~bad)
    times = frame["time"].to_numpy()
    disorder, newest = 0, newest_ms
    if len(times):
        running = np.maximum.accumulate(times)
        if newest_ms is not None:
            running = np.maximum(running, newest_ms)
        disorder, newest = int((running - times).max()), int(running[-1])
    return Intake(frame.cast(RECORD), pl.Series(times < progress_before_ms), dead, disorder, newest)


def _reasons(frame: pl.DataFrame, side: Side, counts: pl.Series) -> pl.Series | None:
    """Why a record takes no part; None when all of them do, which is the rule and costs little."""
    bad_time = not counts.all()
    # A time that was found in a payload has come out of valid JSON.
    checked = side.format is Format.BYTES or (side.payload_time and not frame["time"].null_count())
    bad_value = None if checked else _invalid_values(frame["value"], side.format)
    if not bad_time and bad_value is None:
        return None
    no_reason = pl.repeat(None, len(frame), dtype=pl.String, eager=True)
    none_found = pl.col("time").is_null() & pl.col("bad_value").is_null()  # else it is the value that is no JSON
    return frame.with_columns(bad_value=no_reason if bad_value is None else bad_value, counts=counts).select(
        reason=pl.when(none_found)
        .then(pl.lit("no_time"))
        .when(pl.col("time").is_not_null() & ~pl.col("counts"))
        .then(pl.lit("future_time"))
        .otherwise(pl.col("bad_value"))
    )["reason"]


def _invalid_values(values: pl.Series, form: Format) -> pl.Series | None:
    """The reason for each value that is not in its declared format; None when all are. Null is in any."""
    try:
        text = values.cast(pl.String)
    except pl.exceptions.PolarsError:
        text = pl.Series(pl.from_arrow(text_of(values.to_arrow())))
    not_text = text.is_null() & values.is_not_null()
    bad = not_text
    if form is Format.JSON:
        bad = bad | ~_json_valid(text)
    if not bad.any():
        return None
    reasons = pl.DataFrame({"not_text": not_text, "bad": bad})
    return reasons.select(
        reason=pl.when("not_text").then(pl.lit("invalid_text")).when("bad").then(pl.lit("invalid_json"))
    )["reason"]


def _json_valid(text: pl.Series) -> pl.Series:
    texts = connection().from_arrow(text.to_frame("text").to_arrow())
    valid = texts.project("coalesce(json_valid(text), true) AS valid").to_arrow_table()
    return pl.Series(pl.from_arrow(valid.column("valid")))
