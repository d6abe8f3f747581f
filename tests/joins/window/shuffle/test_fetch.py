"""A partition's range in pieces for the shuffle: what one of them may hold."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from joins.batch.state import PartitionRange
from joins.read.batch_reader import Range
from joins.rows.frames import CHUNK_BYTES
from joins.spec import JoinPath, JoinSpec, Right, Side
from joins.window.shuffle.pieces import Content, Fetch, ShuffledPart
from teacup.kafka.read.fetch import SCHEMA

SPEC = JoinSpec(
    name="divided",
    left=Side(topic="left", format="json"),
    right=Right(topic="right", format="json", before_ms=1_000),
    path=JoinPath.SHUFFLED,
    buckets=4,
)
BATCHES, RECORDS, VALUE = 10, 50, b"x" * 90_000


def test_dead_letters_go_in_pieces_of_bounded_bytes() -> None:
    """Whatever a range has of them; they leave while it is read, and arrive in its order."""
    taken = []

    def read(side: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            taken.append(number)
            yield not_json(number * RECORDS)

    fetch = Fetch("right", Range(5, PartitionRange(0, BATCHES * RECORDS), 10_000, 1_000), 10**15, 4)
    part, when = ShuffledPart(), []
    for piece in fetch.pieces(SPEC, read):
        if piece.content is Content.DEAD:
            assert len(piece.data) < CHUNK_BYTES * 1.1
            assert piece.part == 1
            part.add(piece)
            when.append(len(taken))

    assert when[0] < BATCHES
    dead = [offset for parsed in part._taken("right", 5) for offset in parsed.dead["right_offset"].to_list()]
    assert dead == list(range(BATCHES * RECORDS))


def not_json(first: int) -> pa.RecordBatch:
    """Records that cannot be read as what they should be."""
    columns = {
        "partition": [5] * RECORDS,
        "offset": range(first, first + RECORDS),
        "timestamp": [1_000] * RECORDS,
        "timestamp_type": [1] * RECORDS,
        "key": [b"k"] * RECORDS,
        "value": [VALUE] * RECORDS,
        "headers": [None] * RECORDS,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(values, part.type) for values, part in zip(columns.values(), SCHEMA, strict=True)], schema=SCHEMA
    )
