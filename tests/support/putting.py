"""Records for a test to find. A plain producer writes them at once: an idempotent one waits half a second first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Producer

from teacup.base.now import wall_ms

DEADLINE_S = 60.0


def put_records(
    kafka: Mapping[str, str],
    topic: str,
    count: int,
    *,
    partition: int = 0,
    keys: Sequence[bytes] | None = None,
    values: Sequence[bytes | None] | None = None,
    times_ms: Sequence[int] | None = None,
    headers: Sequence[list[tuple[str, str | bytes | None]] | None] | None = None,
) -> None:
    """So many records at the end of one partition, in the order of the columns; what is not given is empty or now."""
    producer, now_ms = Producer({**kafka, "linger.ms": 0}), wall_ms()
    for i in range(count):
        producer.produce(
            topic,
            key=keys[i] if keys else None,
            value=values[i] if values else None,
            headers=(headers[i] if headers else None) or [],
            timestamp=times_ms[i] if times_ms else now_ms,
            partition=partition,
        )
    assert producer.flush(DEADLINE_S) == 0
