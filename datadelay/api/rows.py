"""What is published as a row of its table, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import RowMapping

from datadelay.model import PartitionReport, Submission, slowest
from datadelay.publish import Published


def to_row(entry: Published) -> dict[str, Any]:
    """Returns all columns but the key and the sequence number."""
    last = entry.last
    return {
        "listed_ms": last.listed_ms,
        "consumed_until_ms": last.consumed_until_ms,
        "submitted_reason": last.reason,
        "caught_up": last.caught_up,
        "generation": last.generation,
        "store_generation": last.store_generation,
        "partitions": [[p.partition, p.position, p.progress_ms, p.reason] for p in last.partitions],
        "positions": None if entry.positions is None else sorted(map(list, entry.positions.items())),
        "value_ms": entry.value_ms,
        "floor_ms": entry.floor_ms,
        "held": entry.held,
        "reason": entry.reason,
        "rewound_ms": entry.rewound_ms,
        "success_ms": entry.success_ms,
        "since_ms": entry.since_ms,
    }


def from_row(row: RowMapping) -> Published:
    """Returns what is published, from all columns of its row."""
    partitions = tuple(PartitionReport(*values) for values in row["partitions"])
    positions: Mapping[int, int] | None = None if row["positions"] is None else dict(row["positions"])
    return Published(
        last=Submission(
            consumer=row["consumer"],
            topic=row["topic"],
            listed_ms=row["listed_ms"],
            consumed_until_ms=row["consumed_until_ms"],
            reason=row["submitted_reason"],
            partitions=partitions,
            generation=row["generation"],
            store_generation=row["store_generation"],
            caught_up=row["caught_up"],
        ),
        positions=positions,
        value_ms=row["value_ms"],
        floor_ms=row["floor_ms"],
        held=row["held"],
        reason=row["reason"],
        rewound_ms=row["rewound_ms"],
        success_ms=row["success_ms"],
        since_ms=row["since_ms"],
        slowest=slowest(partitions),
    )
