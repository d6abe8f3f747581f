"""When a consumer fetches ahead of what is read, and when it rests. The fetch is scripted: its log never ends."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from teacup.kafka.read import range_reader
from teacup.kafka.read.fetch import SCHEMA, Taken
from teacup.kafka.read.range_reader import SHORT, RangeReader


class EndlessFetch:
    """Every offset has a record; `asked` notes from where it was told to fetch, and when to rest."""

    def __init__(self, asked: list[str]) -> None:
        self.topic, self.partition, self.trouble = "t", -1, None
        self._asked = asked
        self._taken: list[int] = []

    def assign(self, partition: int, start: int) -> None:
        self.partition = partition
        self._asked.append(f"from {start}")

    def rest(self) -> None:
        self._asked.append("rest")

    def take(self, position: int, end: int, rows: int, size: int) -> Taken:
        taken = list(range(position, min(end, position + rows)))
        self._taken += taken
        return Taken(len(taken), len(taken), taken[-1] + 1)

    def batch(self) -> pa.RecordBatch:
        offsets, self._taken = self._taken, []
        columns = {
            "offset": offsets,
            **{name: np.zeros(len(offsets), np.int64) for name in ("partition", "timestamp", "timestamp_type")},
        }
        return pa.RecordBatch.from_arrays(
            [pa.array(columns.get(field.name, [None] * len(offsets))).cast(field.type) for field in SCHEMA],
            schema=SCHEMA,
        )

    def ends(self) -> tuple[int, int]:
        return 0, 1 << 40

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the reader's consumers are asked for."""
    calls: list[str] = []
    monkeypatch.setattr(range_reader, "RecordFetch", lambda *_: EndlessFetch(calls))
    return calls


@pytest.fixture
def reader() -> RangeReader:
    return RangeReader("t", {"bootstrap.servers": "nowhere:9"})


def offsets(reader: RangeReader, start: int, end: int) -> list[int]:
    return [at for batch in reader.read(0, start, end) for at in batch.column("offset").to_pylist()]


def test_after_a_short_range_a_consumer_rests_until_the_next_one(reader: RangeReader, asked: list[str]) -> None:
    """Also if that starts where the last one ended."""
    assert offsets(reader, 0, 10) == list(range(10))
    assert offsets(reader, 10, 20) == list(range(10, 20))

    assert asked == ["from 0", "rest", "from 10", "rest"]


def test_a_prepared_range_is_fetched_from_then_on(reader: RangeReader, asked: list[str]) -> None:
    """And from there only once."""
    offsets(reader, 0, 10)
    reader.prepare({0: (10, 10 + SHORT)})
    assert asked[-1] == "from 10"
    offsets(reader, 10, 20)

    assert asked == ["from 0", "rest", "from 10", "rest"]


def test_after_a_long_range_it_fetches_ahead(reader: RangeReader, asked: list[str]) -> None:
    """The next one continues without a seek."""
    offsets(reader, 0, SHORT)
    offsets(reader, SHORT, SHORT + 1)

    assert asked == ["from 0", "rest"]


def test_records_that_were_given_back_are_not_fetched_again(reader: RangeReader, asked: list[str]) -> None:
    """What follows them is."""
    (batch,) = reader.read(0, 0, 10)
    reader.give_back(0, [batch.slice(6)])

    assert offsets(reader, 6, 12) == list(range(6, 12))
    assert asked == ["from 0", "rest", "from 10", "rest"]
