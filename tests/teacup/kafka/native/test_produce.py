"""Any columns and texts, cut in any way, are produced in C as Python writes them; every record is counted."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.native.columns import NotReadable
from teacup.kafka.read.fetch import HEADERS
from teacup.kafka.write.native_producer import NO_MEMORY, NativeRows, _Piece
from teacup.kafka.write.templates import (
    Form,
    HeaderPlan,
    ListedHeaders,
    MadeHeaders,
    MadeTexts,
    Text,
    TextHeader,
    TextPiece,
)
from tests.support.writtenrows import header_lists, plain
from tests.teacup.kafka.native.scriptedproducer import METADATA, PERSISTED, QUEUE_FULL, Produced, ScriptedProducer

BYTES = st.none() | st.binary(max_size=20) | st.sampled_from([b'"', b"\\\n\x00\x1f\x7f", b"\xc3\xa9", b"x" * 5_000])
TEXT = st.none() | st.text(max_size=20) | st.sampled_from(['"', "\\\n\x00\x1f\x7f", "é" * 300])
INTEGER = st.none() | st.integers(-(2**63), 2**63 - 1)
LISTED = st.none() | st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": BYTES}), max_size=3)
COLUMNS: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    "key": (pl.Binary(), BYTES),
    "text": (pl.String(), TEXT),
    "count": (pl.Int64(), INTEGER),
    "part": (pl.Int32(), st.none() | st.integers(-(2**31), 2**31 - 1)),
    "there": (pl.Boolean(), st.none() | st.booleans()),
    "headers": (pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})), LISTED),
}
ROWS = st.lists(st.fixed_dictionaries({name: values for name, (_, values) in COLUMNS.items()}), max_size=20)
WHERE = st.fixed_dictionaries({"where": st.sampled_from(["", "there"]), "holds": st.booleans()})
FORMS = [
    ("text", Form.RAW),
    ("text", Form.STRING),
    ("key", Form.STRING),
    ("key", Form.BASE64),
    ("count", Form.NUMBER),
    ("part", Form.NUMBER),
]
PIECES = st.tuples(
    st.builds(lambda text: {"text": text}, st.text(max_size=8))
    | st.sampled_from(FORMS).map(lambda of: {"column": of[0], "form": of[1]}),
    WHERE,
).map(lambda both: TextPiece(**both[0], **both[1]))
TEXTS = st.lists(PIECES, max_size=8).map(tuple)
PLANS = st.lists(
    st.builds(TextHeader, st.text(max_size=5), TEXTS, st.sampled_from(["", "there"]))
    | st.just(ListedHeaders("headers")),
    max_size=4,
).map(tuple)


@pytest.fixture(scope="module")
def scripted(native_library: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> ScriptedProducer:
    """A copy of the library, bound to a scripted producer."""
    return ScriptedProducer(Path(copy(native_library._name, tmp_path_factory.mktemp("native"))))


@pytest.fixture
def producer(scripted: ScriptedProducer) -> Iterator[ScriptedProducer]:
    """Without what an earlier test has left."""
    scripted.produced, scripted.room, scripted.refuses = [], 1 << 40, {}
    yield scripted
    assert scripted.headers == {}


def frame(rows: list[dict[str, Any]], cut: tuple[int, int]) -> pl.DataFrame:
    """The rows in two chunks, without the first and the last ones."""
    schema = pl.Schema({name: dtype for name, (dtype, _) in COLUMNS.items()})
    half = len(rows) // 2
    both = [pl.DataFrame(some, schema=schema, orient="row") for some in (rows[:half], rows[half:])]
    return pl.concat(both, rechunk=False)[cut[0] : len(rows) - cut[1]]


def in_python(*columns: Any) -> list[Produced]:
    """As Python would hand them over."""
    keys, values, headers, times, partitions = columns
    count = len(keys if keys is not None else values)
    defaults: list[Any] = [(keys, None), (values, None), (times, 0), (partitions, -1)]
    found_in = [list(plain(column, default, count)) for column, default in defaults]
    found = zip(*found_in, header_lists(headers, count), strict=False)
    return [
        Produced(
            "out", encoded(key), encoded(value), [(name, encoded(content)) for name, content in own or ()], time, part
        )
        for key, value, time, part, own in found
    ]


def encoded(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def produce(producer: ScriptedProducer, *columns: Any) -> list[Produced]:
    rows = NativeRows(*columns)
    producer.produced = []
    assert producer.producer.produce("out", rows, 0) == (rows.count, 0)
    return producer.produced


@given(ROWS, st.tuples(st.integers(0, 3), st.integers(0, 3)), TEXTS, PLANS)
def test_any_text_of_any_rows(
    producer: ScriptedProducer, rows: list[dict[str, Any]], cut: tuple[int, int], text: Text, plan: HeaderPlan
) -> None:
    """Values, headers and keys, byte for byte, whatever is null, sliced, or empty."""
    some = frame(rows, cut)
    columns = some["key"], MadeTexts(text, some), MadeHeaders(plan, some), some["count"].clip(0), some["part"]

    assert produce(producer, *columns) == in_python(*columns)


@given(
    st.lists(BYTES, max_size=20),
    st.integers(0, 4),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.lists(LISTED, min_size=20, max_size=20),
)
def test_any_kind_of_column(
    producer: ScriptedProducer, values: list[bytes | None], first: int, kind: pa.DataType, headers: list[Any]
) -> None:
    """Offsets of 32 and 64 bits, and views; whole and sliced, in one chunk and in several."""
    whole = pa.array(values, pa.binary()).cast(kind)
    listed = pa.array(headers[: len(values)], HEADERS)
    for column, own in ((whole, listed), (whole.slice(first), listed.slice(first))):
        times = pa.array(range(len(column)), pa.int64())
        columns = column, pa.chunked_array([column]), own, times, None

        assert produce(producer, *columns) == in_python(*columns)


@pytest.mark.parametrize("column", [pa.array([1], pa.int8()), pa.array([1.0]), pa.array([[1]])])
def test_other_columns_are_refused(column: Any) -> None:
    """Types that no record is made of."""
    with pytest.raises(NotReadable):
        NativeRows(column, None, None, None, None)
    with pytest.raises(NotReadable):
        NativeRows(pa.array([b"a"]), None, None, column, None)


def test_lists_are_columns_as_well(producer: ScriptedProducer) -> None:
    """Of what Python has for each record."""
    columns = [b"k", None], ["é", b""], [[("h", b"1"), ("h", None)], None], [5, 0], [1, -1]

    assert produce(producer, *columns) == in_python(*columns)


def test_columns_of_different_lengths_are_refused() -> None:
    """C would read beyond the shorter one."""
    with pytest.raises(ValueError, match="columns of 2, 1 records"):
        NativeRows(pa.array([b"a", b"b"]), pa.array([b"c"]), None, None, None)


def test_a_full_queue_stops_where_it_goes_on(producer: ScriptedProducer) -> None:
    """Nothing twice, nothing left out."""
    values = pa.array([b"%d" % at for at in range(10)])
    headers = pa.array([[{"key": "h", "value": b"v"}]] * 10, HEADERS)
    rows = NativeRows(None, values, headers, None, None)
    producer.room = 4
    first = producer.producer.produce("out", rows, 0)
    again = producer.producer.produce("out", rows, 4)
    producer.room = 10
    last = producer.producer.produce("out", rows, 4)

    assert (first, again, last) == ((4, QUEUE_FULL), (0, QUEUE_FULL), (6, 0))
    assert [record.value for record in producer.produced] == values.to_pylist()


def test_a_refused_record_has_its_code(producer: ScriptedProducer) -> None:
    """Those before it were taken."""
    producer.refuses = {b"b": 10}
    rows = NativeRows(None, pa.array([b"a", b"b", b"c"]), None, None, None)

    assert producer.producer.produce("out", rows, 0) == (1, 10)
    assert producer.producer.produce("", rows, 0) == (0, -186)


@pytest.mark.parametrize("where", ["value", "header"])
def test_without_memory_nothing_of_the_row_is_produced(
    producer: ScriptedProducer, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A piece of more bytes than there is memory, in the second row."""
    some = pl.DataFrame({"key": [b"a", b"b"], "second": [False, True]})
    text = (TextPiece("before"), TextPiece("huge", where="second"))
    made = MadeTexts(text if where == "value" else (), some)
    rows = NativeRows(some["key"], made, MadeHeaders((TextHeader("h", text),), some), None, None)
    for pieces in (held for held in rows._held if isinstance(held, ctypes.Array) and held._type_ is _Piece):
        if len(pieces) == 2:
            pieces[1].size = 1 << 60

    assert producer.producer.produce("out", rows, 0) == (1, NO_MEMORY)
    assert [record.key for record in producer.produced] == [b"a"]


def test_what_becomes_of_records_is_counted(native_library: ctypes.CDLL, tmp_path: Path) -> None:
    """The first failure is described; one without an error counts by its status. Closing keeps what was counted."""
    scripted = ScriptedProducer(Path(copy(native_library._name, tmp_path)))
    nothing = scripted.counts()
    for error, status in ((0, PERSISTED), (0, 1), (10, 0), (-192, 0), (0, PERSISTED), (1_000, 0)):
        scripted.acknowledge(error, status, partition=7)
    counts = scripted.counts()
    scripted.producer.shut()
    scripted.producer.free()

    assert (nothing.acknowledged, nothing.failed, nothing.code, nothing.codes) == (0, 0, 0, frozenset())
    assert (counts.acknowledged, counts.failed, counts.codes) == (2, 4, {-196, 10, -192})
    assert (counts.topic, counts.partition, counts.code) == ("out", 7, -196)
    assert scripted.counts() == counts
    with pytest.raises(RuntimeError, match="the producer has been closed"):
        scripted.producer.produce("out", NativeRows(None, pa.array([b"late"]), None, None, None), 0)


def test_lost_connections_are_counted(native_library: ctypes.CDLL, tmp_path: Path) -> None:
    """Not those to bootstrap addresses, which librdkafka leaves as soon as it knows the brokers."""
    scripted = ScriptedProducer(Path(copy(native_library._name, tmp_path)))
    seen = []
    for broker, state in ((-1, b"DOWN"), (1, b"CONNECT"), (1, b"UP"), (1, b"DOWN"), (0, b"DOWN"), (0, b"INIT")):
        scripted.change(broker, state)
        seen.append(scripted.producer.connections_lost())
    scripted.producer.shut()
    scripted.producer.free()

    assert seen == [0, 0, 0, 1, 2, 2]
    assert scripted.producer.connections_lost() == 0


def test_produce_requests_in_flight_are_counted(native_library: ctypes.CDLL, tmp_path: Path) -> None:
    """Others are not. One that fails before it was sent takes the place of another, until all records are settled."""
    scripted = ScriptedProducer(Path(copy(native_library._name, tmp_path)))
    producer = scripted.producer
    seen = [producer.in_flight()]
    for step in (scripted.send, scripted.send, lambda: scripted.send(METADATA), lambda: scripted.answer(METADATA)):
        step()
        seen.append(producer.in_flight())
    for error in (0, -185, -195):  # answered, timed out, never sent
        scripted.answer(error=error)
        seen.append(producer.in_flight())
    scripted.send()
    lost = producer.in_flight()
    producer.settled()
    settled = producer.in_flight()
    scripted.send()
    producer.shut()
    producer.free()

    assert seen == [0, 1, 2, 2, 2, 1, 0, 0]
    assert (lost, settled, producer.in_flight()) == (1, 0, 0)
    producer.settled()
