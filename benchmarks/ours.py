"""Our join on the work, in a process of its own.

    --sink none    batch plan, window, marks, envelopes built as a column and dropped; only summaries reach Spark
    --sink kafka   the whole job as by `teacup run`, to a topic

    python -m benchmarks.ours --sink none --format json --work work.json --checkpoint new/folder --out result.json

The result holds the rows by outcome, summed over the summaries of all buckets and batches, and the largest window.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.workload import AFTER_MS, BEFORE_MS, DISORDER_MS, MAX_RECORDS, Work
from deploy.jobfile.job import Deduplicate, JoinJob, Output, Select
from deploy.jobs.join import JoinJobKind
from deploy.jobs.runner import run
from deploy.jobs.stopping import Stop
from deploy.output.routing import outgoing_results
from deploy.watch.lines import Lines
from joins.items import Batches, End, Item, Rows
from joins.plan.reader import JoinControl
from joins.plan.start.copartition import with_path
from joins.read.summary import BucketSummary
from joins.spec import Format, JoinPath, JoinSpec, JoinType, Right, Side
from joins.streaming import join_kind_of, stage_frame
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.write.templates import MadeTexts
from teacup.spark.jvm_errors import SUMMARY_SCHEMA, summary_rows
from teacup.spark.session import Session


def spec_of(
    work: Work,
    form: str,
    before_ms: int,
    max_records: int | None = MAX_RECORDS,
    path: str | None = None,
    kind: str = JoinType.LEFT,
) -> JoinSpec:
    return JoinSpec(
        name="bench",
        left=Side(topic=work.left_topic, disorder_ms=DISORDER_MS, format=Format(form)),
        right=Right(
            topic=work.right_topic,
            disorder_ms=DISORDER_MS,
            format=Format(form),
            before_ms=before_ms,
            after_ms=AFTER_MS,
            type=JoinType(kind),
        ),
        max_records=max_records,
        path=None if path is None else JoinPath(path),
        kafka=work.kafka,
    )


def add_up(summaries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Adds up the rows by outcome over all summaries (of buckets, or of batches); finds the largest window."""
    rows: Counter[str] = Counter()
    windows: dict[int, tuple[int, int]] = {}
    last: Mapping[str, Any] = {}
    for last in summaries:
        rows.update(last["rows"])
        number = last["number"]
        records, size = windows.get(number, (0, 0))
        windows[number] = (records + last["window_records"], size + last["window_bytes"])
    in_window, window_bytes = max(windows.values(), key=lambda window: window[1], default=(0, 0))
    still = windows[last["number"]][0] if windows else 0
    return {
        "counts": {name: rows[name] for name in ("matched", "unmatched", "unjoined")},
        "window": {"records": in_window, "bytes": window_bytes, "records_at_end": still},
    }


def _spark(master: str) -> dict[str, str]:
    return {"master": master, "spark.ui.enabled": "false"}


def run_without_sink(spec: JoinSpec, checkpoint: Path, windows: Path, master: str) -> list[dict[str, Any]]:
    """Runs everything except the producer; returns the summaries."""
    spec = with_path(spec)
    join = join_kind_of(spec).stage(spec, windows, None)
    tag = BatchTag.of(spec.name, "g", 1)

    def summaries_of(items: Iterable[Item[BucketSummary]]) -> Iterator[BucketSummary]:
        for item in items:
            if isinstance(item, Rows):
                results = item.frame.filter(pl.col("outcome").is_in(spec.right.type.outcomes))
                envelopes = outgoing_results(spec, Output(topic="none"), results, tag).values
                if not isinstance(envelopes, MadeTexts) or len(envelopes.to_series()) != len(results):
                    raise AssertionError("an envelope is missing")
            elif isinstance(item, End):
                yield item.summary

    def encode(tickets: Iterable[Any]) -> Batches:
        return summary_rows(summaries_of(join(tickets)))

    summaries: list[dict[str, Any]] = []

    def gather(frame: Any, batch_id: int) -> None:
        summaries.extend(json.loads(row.summary) for row in frame.collect())

    control = JoinControl(windows=windows)
    with closing(Session(spec.name, _spark(master), rows_in_jvm=False)) as session:
        session.warm_up()
        writer = stage_frame(session.spark, spec, encode, SUMMARY_SCHEMA, control).writeStream.foreachBatch(gather)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
    return summaries


WHERE = {"$.currency": "EUR"}
DELIVERIES = ("exactly-once", "at-least-once", "deduplicated")
"""The last is at least once with a deduplicator, which stays off because nothing fails."""


_FIELDS = {"user": "STRING", "page": "STRING", "price": "DOUBLE", "currency": "STRING"}
_SIDES = ("left", "right")
SELECTS = {
    "texts": {
        f"{side}_{name}": f"cast(get_json_object(cast({side}_value as string), '$.{name}') as {kind})"
        for side in _SIDES
        for name, kind in _FIELDS.items()
    },
    "fields": {f"{side}_{name}": f"{side}.{name}" for side in _SIDES for name in _FIELDS},
}
"""Eight fields as columns of their types: each taken from the text by itself, or by a schema of its side."""


def run_to_kafka(
    spec: JoinSpec, topic: str, delivery: str, checkpoint: Path, windows: Path, master: str, select: str | None = None
) -> list[dict[str, Any]]:
    """Runs the job as users do; returns one report per batch."""
    if select == "fields":
        schema = ", ".join(f"{name} {kind}" for name, kind in _FIELDS.items())
        left, right = replace(spec.left, value_schema=schema), replace(spec.right, value_schema=schema)
        spec = replace(spec, left=left, right=right)
    job = JoinJob(
        kind="window-join",
        spec=spec,
        output=Output(
            topic=topic,
            select=None if select is None else Select(value={**SELECTS[select], "outcome": "outcome"}),
            exactly_once=delivery == "exactly-once",
            deduplicate=Deduplicate() if delivery == "deduplicated" else None,
        ),
        checkpoint=str(checkpoint),
        trigger_ms=None,
        spark=_spark(master),
        window_folder=windows,
        json_log=True,
    )
    printed = io.StringIO()
    with Stop() as stop:
        code = run(JoinJobKind(job), Lines(as_json=True, out=printed), stop)
    if code != 0:
        raise SystemExit(int(code))
    return [json.loads(line) for line in printed.getvalue().splitlines()]


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ours", description="Our join.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sink", choices=("none", "kafka"), default="none")
    parser.add_argument("--topic", default="bench-joined", help="the output topic; it must exist")
    parser.add_argument("--path", choices=[*JoinPath], default=None)
    parser.add_argument("--type", choices=[*JoinType], default=JoinType.LEFT)
    parser.add_argument("--delivery", choices=DELIVERIES, default="exactly-once")
    parser.add_argument("--select", choices=SELECTS, help="flat rows of eight fields instead of the envelope")
    parser.add_argument("--format", choices=("json", "bytes"), default="json", help="what the values are declared as")
    parser.add_argument("--where", action="store_true", help="let both sides ask for the currency, which all have")
    parser.add_argument("--before-ms", type=int, default=BEFORE_MS)
    parser.add_argument("--max-records", type=int, default=MAX_RECORDS, help="a batch, left and right together")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    work = Work.load(asked.work)
    spec = spec_of(work, asked.format, asked.before_ms, asked.max_records, asked.path, asked.type)
    if asked.where:
        spec = replace(spec, left=replace(spec.left, where=WHERE), right=replace(spec.right, where=WHERE))
    windows = asked.checkpoint.with_name(asked.checkpoint.name + "-windows")
    if asked.sink == "none":
        summaries = run_without_sink(spec, asked.checkpoint, windows, asked.master)
    else:
        kafka = asked.topic, asked.delivery, asked.checkpoint, windows, asked.master, asked.select
        summaries = run_to_kafka(spec, *kafka)
    result = add_up(summaries) | {"ended_s": time.time(), "pid": os.getpid()}
    asked.out.write_text(json.dumps(result))
    sys.stdout.write(f"{result}\n")


if __name__ == "__main__":
    _main()
