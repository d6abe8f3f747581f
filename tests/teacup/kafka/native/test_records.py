"""Any records, cut in any way, become the expected columns; each message that librdkafka lends is returned once."""

from __future__ import annotations

import ctypes
from pathlib import Path
from shutil import copy

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.headers import UNREADABLE
from teacup.kafka.read.fetch import _BEYOND, _EVENT, _LIMIT, _MORE, SCHEMA, _ArrowArray, _Taken, imported
from tests.teacup.kafka.native.scriptedqueue import Record, ScriptedQueue

BYTES = st.none() | st.binary(max_size=20) | st.integers(0, 300).map(lambda size: b"x" * size)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5).map(str.encode)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.integers(1, 3),  # the step from the one before
        key=BYTES,
        value=BYTES,
        headers=st.lists(st.tuples(NAMES, BYTES), max_size=3).map(tuple),
        timestamp=st.integers(-1, 2**62),
        timestamp_type=st.integers(0, 2),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def queue(native_library: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> ScriptedQueue:
    """A copy of the library, bound to a scripted queue."""
    return ScriptedQueue(Path(copy(native_library._name, tmp_path_factory.mktemp("native"))))


def take(queue: ScriptedQueue, fetch: int, end: int, rows: int, size: int, wanted: int = 20_000) -> _Taken:
    taken = _Taken()
    queue.teacup.tc_fetch_take(fetch, end, rows, size, wanted, 0, ctypes.byref(taken))
    return taken


def columns(queue: ScriptedQueue, fetch: int) -> pa.RecordBatch:
    arrays = (_ArrowArray * len(SCHEMA))()
    assert queue.teacup.tc_fetch_columns(fetch, 7, arrays) == 0
    return imported(arrays)


def row(record: Record) -> dict[str, object]:
    headers = [{"key": name.decode(), "value": value} for name, value in record.headers]
    return {
        "partition": 7,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": headers or None,
    }


def size_of(record: Record) -> int:
    sizes = [len(name) + len(value or b"") for name, value in record.headers]
    return len(record.key or b"") + len(record.value or b"") + sum(sizes)


def placed(records: list[Record]) -> list[Record]:
    """With ascending offsets."""
    offset, found = -1, []
    for record in records:
        offset += record.offset
        found.append(Record(**{**vars(record), "offset": offset}))
    return found


@given(RECORDS, st.integers(1, 12), st.integers(1, 800), st.integers(1, 30), st.integers(0, 60))
def test_any_records_in_any_cut(
    queue: ScriptedQueue, steps: list[Record], rows: int, size: int, wanted: int, end: int
) -> None:
    """Batches are full by rows or by bytes, the last record included; what lies beyond the end is kept."""
    records = placed(steps)
    fetch = queue.teacup.tc_fetch_new(None)
    queue.put(records)
    found: list[list[dict[str, object]]] = []
    held: list[pa.RecordBatch] = []
    while True:
        taken = take(queue, fetch, end, rows, size, wanted)
        ended = taken.stopped == _BEYOND or (taken.stopped == _MORE and not queue.waiting)
        if taken.rows and (taken.stopped == _LIMIT or ended):
            held.append(columns(queue, fetch))
            held[-1].validate(full=True)
            found.append(held[-1].to_pylist())
        if ended:
            break
    queue.teacup.tc_fetch_free(fetch)

    below = [record for record in records if record.offset < end]
    assert [got for batch in found for got in batch] == [row(record) for record in below]
    at = 0
    for batch in found:
        sizes = [size_of(record) for record in below[at : at + len(batch)]]
        at += len(batch)
        full = len(batch) == rows or sum(sizes) >= size
        assert full or at == len(below)
        assert len(batch) <= rows
        assert sum(sizes[:-1]) < size
    assert queue.alive == {}


def test_columns_outlive_what_made_them(queue: ScriptedQueue) -> None:
    """Each column owns its memory: the others, the fetch and its records may go."""
    fetch = queue.teacup.tc_fetch_new(None)
    queue.put([Record(at, key=b"k%d" % at, value=b"v" * at, headers=((b"h", None),)) for at in range(1_000)])
    take(queue, fetch, 1_000, 1_000, 1 << 20)
    keys = columns(queue, fetch).column("key")
    queue.teacup.tc_fetch_free(fetch)

    assert keys.to_pylist() == [b"k%d" % at for at in range(1_000)]
    assert queue.alive == {}


def test_an_event_stops_and_has_its_text(queue: ScriptedQueue) -> None:
    """Records before it are added, those after it wait; another position forgets all of them."""
    fetch = queue.teacup.tc_fetch_new(None)
    queue.put([Record(0), Record(5, error=-191), Record(6), Record(7)])
    event = take(queue, fetch, 100, 100, 100)
    noted = (event.stopped, event.rows, event.last, event.error, event.offset, event.text)
    next_one = take(queue, fetch, 7, 100, 100)
    queue.teacup.tc_fetch_clear(fetch)
    nothing = take(queue, fetch, 100, 100, 100)
    queue.teacup.tc_fetch_free(fetch)

    assert noted == (_EVENT, 1, 0, -191, 5, b"what happened")
    assert (next_one.stopped, next_one.rows, next_one.last) == (_BEYOND, 2, 6)
    assert (nothing.stopped, nothing.rows, nothing.last) == (_MORE, 0, -1)
    assert queue.alive == {}


@pytest.mark.parametrize(
    "name",
    [b"\x80", b"\xff", b"\xc0\x80", b"\xc3", b"a\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"],
)
def test_a_header_name_that_is_not_utf8_is_found(queue: ScriptedQueue, name: bytes) -> None:
    """As Python finds it: Arrow would hand it on until somebody decodes it. The record comes without its headers."""
    fetch = queue.teacup.tc_fetch_new(None)
    good = Record(3, headers=((b"good", b"\xff"),))
    queue.put([good, Record(4, key=b"k", headers=((b"a", b"1"), (name, b""), (b"b", None)))])
    taken = take(queue, fetch, 100, 100, 1_000)
    found = columns(queue, fetch)
    queue.teacup.tc_fetch_free(fetch)

    with pytest.raises(UnicodeDecodeError):
        name.decode()
    found.validate(full=True)
    instead = Record(4, key=b"k", headers=((UNREADABLE.encode(), b"headers"),))
    assert found.to_pylist() == [row(good), row(instead)]
    assert (taken.rows, taken.size) == (2, size_of(good) + size_of(instead))
    assert queue.alive == {}
