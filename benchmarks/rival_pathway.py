"""The rival Pathway: its `interval_join_left` over the same topics, to Kafka.

    PYTHON benchmarks/rival_pathway.py --bootstrap ADDRESS --left TOPIC --right TOPIC --out TOPIC --before-ms 6000

It runs in an environment of its own that has Pathway and not this project (`benchmarks.rivals` makes it), in streaming
mode with its defaults, and never ends: the caller ends it. Its output is `{"key": …, "left": …, "right": … or null,
"diff": 1 or -1}`: a row that it takes back is written again with -1.
"""

from __future__ import annotations

import argparse

import pathway as pw


def _main() -> None:
    parser = argparse.ArgumentParser(description="Pathway on the work.")
    for name in ("bootstrap", "left", "right", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--before-ms", type=int, required=True)
    asked = parser.parse_args()

    def records(topic: str) -> pw.Table:
        kafka = {
            "bootstrap.servers": asked.bootstrap,
            "group.id": f"pathway-{asked.out}",
            "auto.offset.reset": "earliest",
        }
        read = pw.io.kafka.read(kafka, topic, format="plaintext", autogenerate_key=True, with_metadata=True)
        return read.select(
            key=pw.this.key, value=pw.this.data, time=pw.this._metadata["timestamp_millis"].as_int(unwrap=True)
        )

    left, right = records(asked.left), records(asked.right)
    joined = left.interval_join_left(
        right, left.time, right.time, pw.temporal.interval(-asked.before_ms, 0), left.key == right.key
    ).select(key=left.key, left=left.value, right=right.value)
    pw.io.kafka.write(joined, {"bootstrap.servers": asked.bootstrap}, asked.out, format="json")
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    _main()
