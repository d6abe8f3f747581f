r"""The rival Quix Streams: its `join_interval` as a left join over the same topics, to Kafka. One process of it.

    PYTHON benchmarks/rival_quix.py --bootstrap ADDRESS --left TOPIC --right TOPIC --out TOPIC --before-ms 6000 \
        --state FOLDER

It runs in an environment of its own that has Quix Streams and not this project (`benchmarks.rivals` makes it). State,
changelog topics and at-least-once delivery are its defaults. Values are JSON objects on both sides, and the output is
`{"left": …, "right": … or null}` with the join key as key. It ends when nothing has come for `--idle` seconds.
"""

from __future__ import annotations

import argparse
from typing import Any

from quixstreams import Application


def _pair(left: Any, right: Any) -> dict[str, Any]:
    return {"left": left, "right": right}


def _main() -> None:
    parser = argparse.ArgumentParser(description="Quix Streams on the work.")
    for name in ("bootstrap", "left", "right", "out", "state"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--before-ms", type=int, required=True)
    parser.add_argument("--idle", type=float, default=10.0)
    asked = parser.parse_args()
    app = Application(
        broker_address=asked.bootstrap,
        consumer_group=f"quix-{asked.out}",
        auto_offset_reset="earliest",
        state_dir=asked.state,
        topic_create_timeout=120,
    )
    left, right = (
        app.dataframe(app.topic(name, key_deserializer="bytes", value_deserializer="json"))
        for name in (asked.left, asked.right)
    )
    joined = left.join_interval(
        right, how="left", on_merge=_pair, grace_ms=2 * asked.before_ms, backward_ms=asked.before_ms, forward_ms=0
    )
    joined.to_topic(app.topic(asked.out, key_serializer="bytes", value_serializer="json"))
    app.run(timeout=asked.idle)


if __name__ == "__main__":
    _main()
