"""JSON and Arrow carry the same values; broken bodies of any kind are refused."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from teacup.storage.api.config import NamespaceSettings
from teacup.storage.backends.opening import open_backend
from teacup.storage.codecs.arrow import ITEMS, ArrowCodec, written
from teacup.storage.codecs.codec import ENCODINGS, LARGEST, Codec, compress, decompress
from teacup.storage.codecs.json import JsonCodec
from teacup.storage.errors import RequestInvalid, RequestMalformed, RequestTooLarge
from teacup.storage.model import Item, ReadResult, Status, WriteResult
from tests.support.storage_server import NAMESPACES, RunningServer, item, running_server
from tests.support.times import NOON_MS

MANY_BYTES = 1 << 20
CODECS: list[Codec] = [JsonCodec(), ArrowCodec()]
INT64 = st.integers(-LARGEST, LARGEST)
BYTES = st.binary(max_size=20)
ITEM = st.builds(Item, BYTES, INT64, BYTES, BYTES, st.integers(0, LARGEST))
REASON = st.none() | st.text(max_size=10)
OUTCOME = st.builds(WriteResult, st.sampled_from(Status), REASON)
FEW = st.sampled_from([b"a", b"b", b"c"])
FEW_ITEMS = st.builds(
    Item, FEW, st.integers(0, 3), st.sampled_from([b"", b"t"]), BYTES, st.integers(NOON_MS - 1, NOON_MS + 1)
)
NAMES = st.sampled_from(["latest", "all"])
STEPS = st.lists(
    st.tuples(st.just("write"), NAMES, st.lists(FEW_ITEMS, max_size=5))
    | st.tuples(st.sampled_from(["read", "delete"]), NAMES, st.lists(FEW, max_size=4)),
    max_size=6,
)


@pytest.fixture(params=CODECS, ids=lambda codec: type(codec).__name__)
def codec(request: pytest.FixtureRequest) -> Codec:
    made: Codec = request.param
    return made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Serves all examples from one server on LMDB; each has keys of its own."""
    namespaces = [NamespaceSettings.model_validate(settings).namespace for settings in NAMESPACES]
    store = open_backend(f"lmdb://{tmp_path_factory.mktemp('store')}?sync=no", namespaces)
    with running_server(store) as running:
        yield running


@given(items=st.lists(ITEM, max_size=5), outcomes=st.lists(OUTCOME, max_size=5), data=st.data())
def test_what_was_encoded_comes_back(codec: Codec, items: list[Item], outcomes: list[WriteResult], data: Any) -> None:
    """Every value of the model, in both directions."""
    keys = [sent.key for sent in items]
    own = st.lists(ITEM, max_size=3)
    found = [
        ReadResult(outcome.status, tuple(Item(key, i.version, i.tag, i.value, i.expires_at_ms) for i in data.draw(own)))
        for key, outcome in zip(keys, outcomes, strict=False)
    ]

    assert codec.decode_items(codec.encode_items(items), 5, MANY_BYTES) == items
    assert codec.decode_keys(codec.encode_keys(keys), 5, MANY_BYTES) == keys
    assert codec.decode_outcomes(codec.encode_outcomes(outcomes)) == outcomes
    assert codec.decode_found(codec.encode_found(found), keys[: len(found)]) == found


@given(steps=STEPS)
def test_json_and_arrow_give_the_same_result(shared: RunningServer, steps: list[Any]) -> None:
    """The same requests, once in each, through the real server, on keys that nobody has written before."""
    results = []
    for codec in CODECS:
        prefix = uuid4().bytes
        with closing(shared.client(codec=codec)) as client:  # there are many examples, and a limit of connections
            results.append(
                [_bare(getattr(client, operation)(name, _own(prefix, asked))) for operation, name, asked in steps]
            )

    assert results[0] == results[1]


def _own(prefix: bytes, asked: list[Any]) -> list[Any]:
    return [replace(each, key=prefix + each.key) if isinstance(each, Item) else prefix + each for each in asked]


def _bare(results: list[Any]) -> list[Any]:
    return [
        replace(result, items=tuple(replace(item, key=item.key[16:]) for item in result.items))
        if isinstance(result, ReadResult)
        else result
        for result in results
    ]


def test_what_keys_were_at_some_times_is_one_item_for_each_pair(shared: RunningServer) -> None:
    """Thousands in a call, and several for one key; in JSON, too."""
    prefix = uuid4().bytes
    versions = [(1, b"a"), (5, b""), (9, b"b")]
    sent = [item(prefix + b"%d" % key, NOON_MS + at, b"", value) for key in range(800) for at, value in versions]
    pairs = [(prefix + b"%d" % key, NOON_MS + at) for key in range(800) for at in (0, 1, 4, 7, 9, 20, -59_999, -60_000)]
    one = [None, b"a", b"a", b"", b"b", b"b", None, None]
    with closing(shared.client(items_per_request=3_000)) as client:
        client.write("versions", sent)
        keys, times = zip(*pairs, strict=True)
        columns = client.read_columns("versions", pa.array(keys, pa.binary()), as_of=pa.array(times, pa.int64()))
        with pytest.raises(RequestInvalid, match="keep: versions"):
            client.read_columns("all", pa.array(keys[:1], pa.binary()), as_of=pa.array(times[:1], pa.int64()))

    document = {"keys": [b64encode(key).decode() for key in keys[:8]], "as_of": times[:8]}
    headers = {"Authorization": f"Bearer {shared.secrets['writer']}"}
    url = f"{shared.url}/v1/namespaces/versions/items:read"
    results = requests.post(url, json=document, headers=headers, timeout=30).json()["results"]
    values = [b64decode(result["items"][0]["value"]) if result["items"] else None for result in results]
    assert (values, results[7]["status"]) == (one, "no_longer_stored")
    there = [at for at, value in enumerate(one * 800) if value is not None]
    assert columns.items["index"].to_pylist() == there
    assert columns.items["value"].to_pylist() == [value for value in one * 800 if value is not None]
    assert set(columns.rejected["status"].to_pylist()) == {"no_longer_stored"}
    assert columns.rejected["index"].to_pylist() == list(range(7, 6_400, 8))


def asked_as_of(codec: Codec, keys: list[bytes], as_of: list[int]) -> bytes:
    """Returns the body of a request of items:read for keys as of a version each."""
    if isinstance(codec, JsonCodec):
        return json.dumps({"keys": [b64encode(key).decode() for key in keys], "as_of": as_of}).encode()
    return written(pa.table({"key": pa.array(keys, pa.binary()), "as_of": pa.array(as_of, pa.int64())}))


def test_a_version_for_each_key_or_for_none(codec: Codec) -> None:
    """A missing column, or member, asks for all that is kept; too few versions are refused."""
    assert codec.decode_wanted(codec.encode_keys([b"a", b"b"]), 2, MANY_BYTES) == ([b"a", b"b"], None)
    assert codec.decode_wanted(asked_as_of(codec, [b"a"], [-7]), 1, MANY_BYTES) == ([b"a"], [-7])
    with pytest.raises(RequestTooLarge):
        codec.decode_wanted(asked_as_of(codec, [b"a"] * 3, [1] * 3), 2, MANY_BYTES)
    with pytest.raises(RequestInvalid, match="one for each"):
        JsonCodec().decode_wanted(b'{"keys": ["YQ=="], "as_of": []}', 1, MANY_BYTES)


def test_more_items_than_allowed_are_too_many(codec: Codec) -> None:
    """Reported before anything is done."""
    with pytest.raises(RequestTooLarge, match="3 items"):
        codec.decode_keys(codec.encode_keys([b"a"] * 3), 2, MANY_BYTES)


@pytest.mark.parametrize("cut", [1, 8, 9, 100])
def test_half_a_body_is_malformed(codec: Codec, cut: int) -> None:
    """Never a shorter request."""
    body = codec.encode_items([item(bytes([n])) for n in range(10)])

    with pytest.raises(RequestMalformed):
        codec.decode_items(body[:-cut], 10, MANY_BYTES)


def test_a_stream_that_was_cut_between_two_batches_is_malformed() -> None:
    """Arrow itself takes it for a whole one."""
    batch = pa.record_batch([[b"a", b"b"]], names=["key"])
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, batch.schema)
    writer.write_batch(batch)
    writer.write_batch(batch)
    writer.close()
    whole = sink.getvalue().to_pybytes()
    assert ArrowCodec().decode_keys(whole, 10, MANY_BYTES) == [b"a", b"b", b"a", b"b"]

    with pytest.raises(RequestMalformed, match="does not end"):
        ArrowCodec().decode_keys(whole[:-8], 10, MANY_BYTES)


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def test_other_binary_and_integer_columns_are_understood() -> None:
    """As polars and numpy make them; the tag may be missing."""
    table = pa.table(
        {
            "key": pa.array([b"ab"], pa.binary(2)),
            "version": pa.array([5], pa.uint32()),
            "value": pa.array([b"v"], pa.large_binary()),
            "expires_at_ms": pa.array([7], pa.int32()),
        }
    )

    assert ArrowCodec().decode_items(stream(table), 1, MANY_BYTES) == [Item(b"ab", 5, b"", b"v", 7)]


GOOD = {"key": [b"k"], "version": [1], "tag": [b""], "value": [b"v"], "expires_at_ms": [1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": None}, "expected: key, version, tag \\(optional\\)"),
        ({"more": [1]}, "more"),
        ({"key": ["text"]}, "column key is of type string"),
        ({"version": [1.5]}, "column version is of type double"),
        ({"version": pa.array([2**63], pa.uint64())}, "column version"),
        ({"value": pa.array([None], pa.binary())}, "column value has 1 nulls"),
        ({"expires_at_ms": [-1]}, "column expires_at_ms: -1 to -1"),
        ({"version": [LARGEST + 1]}, "column version"),
    ],
)
def test_wrong_columns_are_named(change: dict[str, Any], message: str) -> None:
    """What is wrong, and what is expected."""
    columns = {name: value for name, value in {**GOOD, **change}.items() if value is not None}

    with pytest.raises(RequestInvalid, match=message):
        ArrowCodec().decode_items(stream(pa.table(columns)), 10, MANY_BYTES)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_buffers_are_refused(compression: str) -> None:
    """They decompress to any size before they can be checked."""
    table = pa.table({"key": [bytes(10_000)]})

    with pytest.raises(RequestInvalid, match="compressed buffers"):
        ArrowCodec().decode_keys(stream(table, compression), 10, MANY_BYTES)


@contextmanager
def counted_memory() -> Iterator[pa.MemoryPool]:
    """Takes Arrow's memory from a pool that counts it."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def views(rows: int, size: int) -> pa.Array:
    """Makes views of one and the same buffer."""
    view = struct.pack("<i4sii", size, bytes(4), 0, 0)
    return pa.Array.from_buffers(pa.binary_view(), rows, [None, pa.py_buffer(view * rows), pa.py_buffer(bytes(size))])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (pa.FixedSizeBinaryArray.from_buffers(pa.binary(0), 200_000_000, [None, pa.py_buffer(b"")]), "max_items"),
        (views(500, 100_000), "50000000 bytes .*max_body_bytes"),
        (views(500, 100_000)[250:], "25000000 bytes .*max_body_bytes"),
    ],
    ids=["rows of no width", "overlapping views", "a slice of them"],
)
def test_a_small_body_cannot_describe_a_large_request(keys: pa.Array, words: str) -> None:
    """Rows and lengths are counted before anything is copied."""
    body = stream(pa.table({"key": keys}))

    with counted_memory() as pool, pytest.raises(RequestTooLarge, match=words):
        ArrowCodec().decode_keys(body, 1_000, MANY_BYTES)

    assert pool.max_memory() < MANY_BYTES


def test_views_of_one_buffer_are_understood_within_the_limit() -> None:
    """As a column of one repeated value is sent."""
    assert ArrowCodec().decode_keys(stream(pa.table({"key": views(5, 100)})), 5, 500) == [bytes(100)] * 5


def test_many_empty_batches_are_too_many() -> None:
    """Each costs memory, too."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("key", pa.binary())])) as writer:
        for _ in range(12):
            writer.write_batch(pa.record_batch([pa.array([], pa.binary())], names=["key"]))

    with pytest.raises(RequestTooLarge):
        ArrowCodec().decode_keys(sink.getvalue().to_pybytes(), 10, MANY_BYTES)


def test_a_long_schema_is_refused() -> None:
    """Before its columns are made."""
    table = pa.table({f"column{n}": pa.array([], pa.binary()) for n in range(10_000)})

    with pytest.raises(RequestInvalid, match="Arrow schema has"):
        ArrowCodec().decode_keys(stream(table), 10, MANY_BYTES)


def dictionaries(count: int) -> bytes:
    """Makes a stream with so many dictionary batches of a column that has a dictionary."""
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([b"k"]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("key", column.type)])) as writer:
        for number in range(count):
            values = pa.array([b"%d" % number])
            batch = pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), values)], names=["key"])
            writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def test_columns_with_a_dictionary_are_refused_before_any_is_read() -> None:
    """They would have to be counted as batches are."""
    with pytest.raises(RequestInvalid, match=r"column key .*dictionary"):
        ArrowCodec().decode_keys(dictionaries(1), 10, MANY_BYTES)


def test_dictionaries_that_no_column_has_are_refused() -> None:
    """The schema of one stream, the rest of another."""
    with_dictionaries = dictionaries(3)
    schema = written(pa.record_batch([[b"k"]], names=["key"])).split(b"\xff\xff\xff\xff")[1]
    rest = with_dictionaries.split(b"\xff\xff\xff\xff")[2:]
    body = b"\xff\xff\xff\xff".join([b"", schema, *rest])

    with pytest.raises(RequestInvalid, match="message of type 'dictionary'"):
        ArrowCodec().decode_keys(body, 10, MANY_BYTES)


def test_the_schema_is_looked_at_before_the_batches() -> None:
    """However many there are."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("other", pa.binary())])) as writer:
        for _ in range(12):
            writer.write_batch(pa.record_batch([pa.array([], pa.binary())], names=["other"]))

    with pytest.raises(RequestInvalid, match="columns"):
        ArrowCodec().decode_keys(sink.getvalue().to_pybytes(), 10, MANY_BYTES)


ITEM_TEXT = b'"key": "YQ", "value": "YQ", "version": 1, "expires_at_ms": 2'


@pytest.mark.parametrize(
    "body",
    [
        b'{"items": [{%b, "version": 1}]}' % ITEM_TEXT,
        b'{"items": [{%b}, {%b, "key": "YQ"}]}' % (ITEM_TEXT, ITEM_TEXT),
        b'{"items": [{%b}], "items": [{%b}]}' % (ITEM_TEXT, ITEM_TEXT),
    ],
)
def test_a_member_that_occurs_twice_is_refused(body: bytes) -> None:
    """Of two, a parser takes the last."""
    assert JsonCodec().decode_items(b'{"items": [{%b}, {%b}]}' % (ITEM_TEXT, ITEM_TEXT), 9, MANY_BYTES)
    with pytest.raises(RequestMalformed, match="occurs twice"):
        JsonCodec().decode_items(body, 9, MANY_BYTES)
    with pytest.raises(RequestMalformed, match="occurs twice"):
        JsonCodec().decode_keys(b'{"keys": ["YQ"], "keys": []}', 9, MANY_BYTES)


@pytest.mark.parametrize("version", ["9007199254740993.0", "1e18", "-9007199254740992.0", "1.5"])
def test_a_number_that_would_be_rounded_is_refused(version: str) -> None:
    """2^53 + 1 with a fraction is read as 2^53; smaller ones are exact, and larger ones without a fraction."""
    body = '{"items": [{"key": "YQ", "value": "YQ", "version": %s, "expires_at_ms": 2}]}'
    bodies = [(body % version).encode() for version in ("3.0", 2**53 + 1)]
    exact = [JsonCodec().decode_items(sent, 1, MANY_BYTES)[0].version for sent in bodies]

    assert exact == [3, 2**53 + 1]
    with pytest.raises(RequestInvalid, match=r"items\.0\.version"):
        JsonCodec().decode_items((body % version).encode(), 1, MANY_BYTES)


@pytest.mark.parametrize("values", ["1", "{}", '""'])
def test_json_is_counted_before_it_is_parsed(values: str) -> None:
    """A parsed body, and the errors of its values, would be many times as large."""
    body = values.join(["[", *[","] * 2_000_000, "]"]).encode()

    tracemalloc.start()
    with pytest.raises(RequestTooLarge, match="max_items"):
        JsonCodec().decode_keys(b'{"keys":%b}' % body, 1_000, MANY_BYTES)
    with pytest.raises(RequestTooLarge, match="max_items"):
        JsonCodec().decode_items(b'{"items":%b}' % body, 1_000, MANY_BYTES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 3 * len(body)


def test_the_first_wrong_item_ends_a_body() -> None:
    """The errors of a thousand would be longer than the body."""
    with pytest.raises(RequestInvalid, match=r"^keys\.0: [^;]*$"):
        JsonCodec().decode_keys(b'{"keys":[1,1,1,1]}', 1_000, MANY_BYTES)


def test_broken_streams_are_refused_and_nothing_else_happens() -> None:
    """Bytes changed at random: either they are still a request, or an error of ours says no."""
    body = bytearray(ArrowCodec().encode_items([item(bytes([n])) for n in range(50)]))
    choose = random.Random(1)

    for _ in range(1_500):
        broken = bytearray(body)
        for _ in range(choose.randint(1, 6)):
            broken[choose.randrange(len(broken) - 8)] = choose.randrange(256)
        try:
            items = ArrowCodec().decode_items(bytes(broken), 50, MANY_BYTES)
        except RequestInvalid:
            continue
        assert all(isinstance(decoded.key, bytes) for decoded in items)


@pytest.mark.parametrize(
    ("text", "expected"), [("-_8=", b"\xfb\xff"), ("-_8", b"\xfb\xff"), ("+/8=", b"\xfb\xff"), ("", b"")]
)
def test_both_alphabets_of_base64_are_understood(text: str, expected: bytes) -> None:
    """With and without padding: people send what their tool gives."""
    assert JsonCodec().decode_keys(b'{"keys":["%s"]}' % text.encode(), 1, MANY_BYTES) == [expected]


@pytest.mark.parametrize("text", ["A", "+_8=", "AB==", "%", "AA A", "ä"])
def test_bad_base64_is_refused_with_its_place(text: str) -> None:
    """Nothing is skipped over silently."""
    with pytest.raises(RequestInvalid, match=r"keys\.1: "):
        JsonCodec().decode_keys(b'{"keys":["","%s"]}' % text.encode(), 2, MANY_BYTES)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_is_undone_up_to_a_limit(encoding: str) -> None:
    """A small body that decompresses to a large one is refused without being held in memory."""
    packed = compress(bytes(10_000), encoding)

    assert decompress(packed, encoding, 10_000) == bytes(10_000)
    with pytest.raises(RequestTooLarge):
        decompress(packed, encoding, 9_999)
    with pytest.raises(RequestMalformed):
        decompress(b"no such thing", encoding, 10_000)


def test_the_columns_of_items_are_those_that_the_client_sends() -> None:
    """Whoever sends a table of this schema is understood."""
    assert ArrowCodec().decode_items(stream(ITEMS.empty_table()), 0, MANY_BYTES) == []
