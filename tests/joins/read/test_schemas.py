"""A schema that comes later changes no record that was read without it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.batch.facts import RangeFacts
from joins.batch.state import PartitionRange
from joins.errors import DataLoss
from joins.read.parse import RAW, UNREADABLE, as_first_read, known_in

IDS = st.one_of(st.integers(1, 4), st.none())


def read(ids: list[int | None], start: int, registry: set[int]) -> pa.RecordBatch:
    """Records from an offset on that name these schemas (None: no frame), as the registry is now."""
    raw = [b"text" if schema is None else b"\x00" + schema.to_bytes(4, "big") + b"x" for schema in ids]
    why = ["invalid_avro" if schema is None else None if schema in registry else "unknown_schema" for schema in ids]
    return pa.record_batch(
        {
            "offset": pa.array(range(start, start + len(ids)), pa.int64()),
            RAW: pa.array(raw, pa.binary()),
            UNREADABLE: pa.array(why, pa.string()),
        }
    )


def taking_part(batch: pa.RecordBatch) -> list[int]:
    return [
        offset
        for offset, why in zip(batch["offset"].to_pylist(), batch[UNREADABLE].to_pylist(), strict=True)
        if why is None
    ]


@given(st.lists(st.tuples(st.lists(IDS, max_size=6), st.sets(st.integers(1, 4), max_size=2)), max_size=6))
def test_what_is_read_again_takes_part_as_at_first(batches: list[tuple[list[int | None], set[int]]]) -> None:
    """Whatever is registered between the batches, and afterwards."""
    registry: set[int] = set()
    partition_range, first, named = PartitionRange.starting_at(0), [], []
    for ids, registered in batches:
        batch = read(ids, partition_range.start, registry)
        first += taking_part(batch)
        facts = RangeFacts(partition_range.start + len(ids), 0, schemas=tuple(known_in(batch).items()))
        partition_range, named = partition_range.after(facts, 0), named + ids
        registry |= registered

    again = as_first_read(read(named, 0, {1, 2, 3, 4}), dict(partition_range.schemas), "clicks[0]")

    assert taking_part(again) == first
    assert [why for why in again[UNREADABLE].to_pylist() if why == "unknown_schema"] == [
        "unknown_schema" for offset, schema in enumerate(named) if schema is not None and offset not in first
    ]


def test_a_schema_that_the_registry_has_lost_is_named() -> None:
    """Without it right records would be missing, and left ones go without them."""
    with pytest.raises(DataLoss, match=r"schema 3, .*offset 11 of clicks\[0\]"):
        as_first_read(read([2, 3], 10, {2}), {2: 0, 3: 5}, "clicks[0]")


def test_records_that_name_no_schema_are_left_alone() -> None:
    """Those of topics in other formats."""
    plain = pa.record_batch({"offset": [1], "value": [b"{}"]})

    assert known_in(plain) == {}
    assert as_first_read(plain, {}, "clicks[0]") is plain
