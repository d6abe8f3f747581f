"""What the C library saves: CPU time per record (all threads of the process), both paths in turns, and their ratio.

    fetch     a range of a topic to Arrow: 150-byte values, 16-byte keys, no headers
    headers   the same with two headers per record
    json      whether a text of 170 bytes is JSON
    sink      rows of a join to a topic, until they are acknowledged: envelopes of two such values, position headers

Prints the median of the rounds. CPU time depends little on what else the machine does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping

import polars as pl
import pyarrow as pa

from benchmarks.workload import create_topic
from dedup.identity import BatchTag
from deploy.dev.broker.broker import Broker
from deploy.job import Output
from deploy.output.routing import outgoing_results, too_large
from joins.rows.frames import ROW
from joins.spec import Format, JoinSpec, Side
from teacup.base.now import wall_ms
from teacup.kafka.native import library
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.records.json_text import valid_json
from teacup.kafka.write.topic_limits import limits_of
from teacup.kafka.write.writer import TopicWriter

TEXT = '{"id":%d,"user":"u%d","price":1.25,"tags":["a","b"],"inner":{"x":true,"y":null},"text":"%s"}'


SINK_CHUNK = 20_000


def _filled(kafka: Mapping[str, str], topic: str, count: int, headers: bool) -> str:
    create_topic(kafka["bootstrap.servers"], topic, partitions=1)
    writer = TopicWriter(kafka)
    for start in range(0, count, 50_000):
        numbers = range(start, min(start + 50_000, count))
        positions = [[("teacup.left", b"0:%d" % at), ("teacup.right", b"1:%d" % at)] for at in numbers]
        writer.write(
            topic, [b"%016d" % at for at in numbers], [b"v" * 150] * len(numbers), positions if headers else None
        )
        writer.flush()
    writer.close()
    return topic


def _fetched(kafka: Mapping[str, str], topic: str, count: int) -> None:
    reader = RangeReader(topic, kafka)
    rows = sum(batch.num_rows for batch in reader.read(0, 0, count))
    reader.close()
    if rows != count:
        raise AssertionError(f"{rows} records of {count}")


def _rows(texts: pa.Array) -> pl.DataFrame:
    """Returns rows with these values, every fifth without a right record."""
    offset = pl.int_range(len(texts), dtype=pl.Int64)
    sides = {
        f"{side}_{name}": value
        for side in ("left", "right")
        for name, value in {
            "key": pl.col("key"),
            "time": wall_ms() + 0 * offset,
            "value": pl.col("value"),
            "headers": pl.lit(None, dtype=ROW["left_headers"]),
            "partition": pl.lit(0, dtype=pl.Int32),
            "offset": offset,
        }.items()
    }
    rows = pl.DataFrame({"value": pl.Series(pl.from_arrow(texts)).cast(pl.Binary)}).with_columns(
        key=pl.format("{}", offset).str.zfill(16).cast(pl.Binary)
    )
    rows = rows.with_columns(outcome=pl.lit("matched"), reason=pl.lit(None, pl.String), late=False, **sides)
    missing = (pl.when(offset % 5 > 0).then(pl.col(name)).alias(name) for name in sides if name.startswith("right"))
    return rows.with_columns(*missing).select(*ROW)


def _sunk(kafka: Mapping[str, str], topic: str, rows: pl.DataFrame) -> None:
    left, right = (Side(topic=name, format=Format.JSON) for name in ("l", "r"))
    spec = JoinSpec(name="benchmark", left=left, right=right, before_ms=1, kafka=dict(kafka))
    limits = limits_of(kafka, [topic])[topic]
    writer = TopicWriter(kafka)
    for start in range(0, len(rows), SINK_CHUNK):
        some = rows[start : start + SINK_CHUNK]
        out = outgoing_results(spec, Output(topic=topic), some, BatchTag.of(spec.name, "g", 1)).restamped(
            limits, wall_ms()
        )
        if too_large(out, limits):
            raise AssertionError("no record is too large")
        writer.write(topic, out.keys, out.values, out.headers, out.times)
    if writer.flush().acknowledged != len(rows):
        raise AssertionError("a record was not acknowledged")
    writer.close()


def _measured(work: Callable[[], object], count: int) -> float:
    """Returns the microseconds of CPU per record."""
    started = time.process_time()
    work()
    return (time.process_time() - started) / count * 1e6


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native", description="What the C library saves.")
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    native = library.loaded()
    if native is None:
        raise SystemExit(f"nothing to compare: {library.missing()}")
    count = asked.records
    texts = pa.array([TEXT % (at, at, "the quick brown fox jumps over the lazy dog, " * 2) for at in range(count)])
    with Broker() as broker:
        kafka = {"bootstrap.servers": broker.bootstrap}
        rows, sink = _rows(texts), "sink"
        create_topic(broker.bootstrap, sink, partitions=1)
        plain, headed = (_filled(kafka, name, count, name == "headers") for name in ("plain", "headers"))
        parts: dict[str, Callable[[], object]] = {
            "fetch": lambda: _fetched(kafka, plain, count),
            "headers": lambda: _fetched(kafka, headed, count),
            "json": lambda: valid_json(texts),
            "sink": lambda: _sunk(kafka, sink, rows),
        }
        found: dict[tuple[str, str], list[float]] = {}
        for number in range(asked.rounds + 1):  # the first one warms up
            for path, loaded in (("C", lambda: native), ("Python", lambda: None)):
                library.loaded = loaded
                for name, work in parts.items():
                    cost = _measured(work, count)
                    if number:
                        found.setdefault((name, path), []).append(cost)
    for name in parts:
        in_c, in_python = (statistics.median(found[name, path]) for path in ("C", "Python"))
        print(f"{name:8} C {in_c:5.2f}   Python {in_python:5.2f} µs/record   ratio {in_c / in_python:.2f}")


if __name__ == "__main__":
    _main()
