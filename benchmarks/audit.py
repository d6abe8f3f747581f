"""`teacup audit` of a job's whole output: how long, with how much memory, and whether it finds four injected faults.

    python -m benchmarks.audit [--scale 0.95]

A job joins the work of `benchmarks.workload`; `--scale 0.95` makes 10 million records, left, right and rows together.
Its output is audited as it is, which must be clean. Then it is copied with one row dropped, one doubled, one altered,
and the copy of one record goes to the wrong side topic: the audit of that must name these four, and nothing else.
Each audit is a process of its own, as cron starts it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.measure import Footprint, child_environment, run
from benchmarks.window_join import TIMEOUT_S, check
from benchmarks.workload import AFTER_MS, BEFORE_MS, DISORDER_MS, Work, create_topic, make
from teacup.base.errors import ExitCode
from teacup.base.times import iso
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter

PROMISED_RECORDS, PROMISED_S, PROMISED_BYTES = 10_000_000, 120, 2 << 30
OUT, FAULTY, LATE, DEAD = "bench-out", "bench-faulty", "bench-late", "bench-dead"
DIFFERS = int(ExitCode.DIFFERS)
DROPPED, DOUBLED, ALTERED, STRAYED = 1_000, 2_000, 3_000, 4_000


def document(work: Work, folder: Path, output: str) -> dict[str, Any]:
    return {
        "name": "bench",
        "kind": "window-join",
        "log": "json",
        "kafka": work.kafka,
        "left": {"topic": work.left_topic, "disorder": f"{DISORDER_MS}ms", "format": "json"},
        "right": {"topic": work.right_topic, "disorder": f"{DISORDER_MS}ms", "format": "json"},
        "join": {"before": f"{BEFORE_MS}ms", "after": f"{AFTER_MS}ms"},
        "output": {"topic": output},
        "topics": {"late": LATE, "dead_letter": DEAD},
        "trigger": "available_now",
        "checkpoint": str(folder / "checkpoint"),
        "window_folder": str(folder / "windows"),
        "spark": {"master": "local[2]", "spark.ui.enabled": "false"},
    }


def copy_with_faults(kafka: Mapping[str, str], work: Work) -> None:
    """Copies the output with three faults in partition 0, and a row of it into the topic of late records."""
    log, reader, writer = BrokerLog(OUT, kafka), RangeReader(OUT, kafka), TopicWriter(kafka)
    for p, ends in log.ends().items():
        first = 0
        for batch in reader.read(p, 0, ends.stable):
            whole = pa.Table.from_batches([batch])
            if p == 0 and first == 0:
                whole = faulty(whole)
                writer.write(LATE, **{name: column.slice(STRAYED, 1) for name, column in columns(batch).items()})
            writer.write(FAULTY, **columns(whole.combine_chunks().to_batches()[0]))
            first += batch.num_rows
    writer.flush()
    writer.close()
    log.close()
    reader.close()


def faulty(table: pa.Table) -> pa.Table:
    """Returns rows of which one is missing, one comes twice, and one has another value."""
    values = table.column("value").to_pylist()
    values[ALTERED] = values[ALTERED].replace(b'"outcome"', b'"outcom_"')
    at = table.schema.get_field_index("value")
    table = table.set_column(at, table.schema.field(at), pa.array(values, pa.binary()))
    return pa.concat_tables([table.slice(0, DROPPED), table.slice(DROPPED + 1), table.slice(DOUBLED, 1)])


def columns(batch: pa.RecordBatch) -> dict[str, Any]:
    return {
        "keys": batch.column("key"),
        "values": batch.column("value"),
        "headers": batch.column("headers"),
        "timestamps": batch.column("timestamp"),
        "partitions": batch.column("partition"),
    }


def audited(
    work: Work, folder: Path, output: str, expected: int, *more: str
) -> tuple[dict[str, Any], float, Footprint]:
    """Audits an output in a process of its own; returns its findings, the seconds, and what it took."""
    file, log = folder / f"{output}.yaml", folder / f"{output}.log"
    file.write_text(yaml.safe_dump(document(work, folder, output)))
    span = ("--from", iso(work.begin_ms - 60_000), "--to", iso(work.end_ms + 60_000))
    command = [sys.executable, "-m", "deploy.cli", "audit", str(file), *span, "--json", *more]
    shell = ["/bin/sh", "-c", f'"$@"; test $? -eq {expected}', "audit", *command]
    done = run(shell, log, TIMEOUT_S, child_environment())
    (line,) = (json.loads(text) for text in log.read_text().splitlines() if text.startswith("{"))
    return line, done.seconds, done.footprint


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description="teacup audit of a whole output.")
    parser.add_argument("--scale", type=float, default=0.1, help="of the work; 0.95: 10 million records")
    scale = parser.parse_args().scale
    print(machine())
    with broker_and_folder() as (broker, folder):
        work = make(broker.bootstrap, scale)
        for topic in (OUT, FAULTY, LATE, DEAD):
            create_topic(broker.bootstrap, topic)
        file = folder / "job.yaml"
        file.write_text(yaml.safe_dump(document(work, folder, OUT)))
        run([sys.executable, "-m", "deploy.cli", "run", str(file)], folder / "log", TIMEOUT_S)

        found, seconds, took = audited(work, folder, OUT, 0)
        counts = work.by_before_ms[BEFORE_MS]
        outcomes = found["outcomes"]["matched"], found["outcomes"]["unmatched"]
        check("audited", outcomes, (counts.matched, counts.unmatched))
        records = work.left + work.right + found["read"]["rows"]
        print(
            f"{records:,} records in {seconds:.1f} s, {records / seconds:,.0f}/s, {took.cpu_s:.0f} s of CPU; PSS "
            f"{took.peak_bytes / 1e6:,.0f} MB at most; {found['strict']:,} left records checked strictly, "
            f"{found['allowed']:,} as allowed: clean"
        )
        copy_with_faults(work.kafka, work)
        wrong, *_ = audited(work, folder, FAULTY, DIFFERS)
        for fault in wrong["faults"]:
            print(f"  {fault['kind']}: {fault['topic']}, left {fault['left']}, key {fault['key']}: {fault['why']}")
        kinds = sorted(fault["kind"] for fault in wrong["faults"])
        print(promise_line(kinds == ["altered", "doubled", "missing", "wrong side topic"], "four faults are named"))
        _, sampled_s, _ = audited(work, folder, OUT, 0, "--sample", "1%")
        print(f"--sample 1%: {sampled_s:.1f} s")
    fits = seconds / records <= PROMISED_S / PROMISED_RECORDS and took.peak_bytes <= PROMISED_BYTES
    print(promise_line(fits, f"{PROMISED_RECORDS:,} records in {PROMISED_S} s within {PROMISED_BYTES >> 30} GB"))


if __name__ == "__main__":
    _main()
