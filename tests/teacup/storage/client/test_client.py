"""The client against a real server, and a real proxy that spoils answers: what is repeated, and what not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from teacup.storage.client import StorageClient
from teacup.storage.errors import (
    AccessDenied,
    AnswerNotUnderstood,
    GenerationChanged,
    ItemsUnsettled,
    NamespaceUnknown,
    RateLimited,
    RequestTooLarge,
    ServerUnavailable,
    StorageConfigInvalid,
    StorageError,
)
from teacup.storage.model import ReadResult, Status, WriteResult
from tests.support.dictbackend import DictBackend, unavailable
from tests.support.faultyproxy import Fault, Proxy, closed, half_a_body, running_proxy, shorter_body, status
from tests.support.storage_server import RunningServer, item, running_server
from tests.support.times import NOON_MS

OK = WriteResult(Status.OK)
ITEMS = [item(b"key-%d" % number, number) for number in range(50)]
KEYS = pa.array([sent.key for sent in ITEMS], pa.binary())


@pytest.fixture
def proxy(server: RunningServer) -> Iterator[Proxy]:
    """Forwards to `server`."""
    with running_proxy(server.url) as running:
        yield running


@pytest.fixture
def client(server: RunningServer, proxy: Proxy) -> Iterator[StorageClient]:
    """Connects through the proxy."""
    with StorageClient(proxy.url, server.secrets["writer"], read_timeout_s=5) as made:
        yield made


def test_calls_beyond_a_request_are_split_and_put_together(server: RunningServer) -> None:
    """By items and by bytes, as plain data and in columns."""
    items = [item(b"key-%04d" % number, number, value=bytes(number % 300)) for number in range(500)]
    keys = [sent.key for sent in items]
    for limits in ({"items_per_request": 7}, {"bytes_per_request": 1_000}):
        client = server.client(**limits)

        assert client.write("latest", items) == [OK] * 500
        assert [found.items for found in client.read("latest", keys)] == [(sent,) for sent in items]
        found = client.read_columns("latest", pa.array([b"none", *keys], pa.binary())).items
        assert found["index"].to_pylist() == list(range(1, 501))
        assert found["value"].to_pylist() == [sent.value for sent in items]
        assert client.delete("latest", keys) == [OK] * 500
        assert client.read("latest", keys) == [ReadResult(Status.NOT_FOUND)] * 500


def test_a_server_with_smaller_limits_gets_smaller_requests(store: DictBackend) -> None:
    """413 halves a request, until it passes; a single item that does not is an error."""
    items = [item(b"key-%d" % number, value=bytes(900)) for number in range(100)]
    with running_server(store, max_body_bytes=20_000, max_items=40) as small:
        client = small.client()

        assert client.write("latest", items) == [OK] * 100
        assert client.read_columns("latest", pa.array([sent.key for sent in items])).items.num_rows == 100
        with pytest.raises(RequestTooLarge, match="max_body_bytes"):
            client.write("latest", [item(value=bytes(30_000))])


def test_columns_report_what_was_not_kept(server: RunningServer) -> None:
    """By the index of the row; what is kept has no row."""
    client = server.client(items_per_request=2)
    client.write("latest", [item(b"b", 9)])
    table = pa.table(
        {
            "key": [b"a", b"b", b"c" * 2_000],
            "version": [1, 1, 1],
            "value": [b"v"] * 3,
            "expires_at_ms": [NOON_MS + 1] * 3,
        }
    )

    refused = client.write_table("latest", table)
    answered = client.read_columns("latest", pa.chunked_array([table["key"].combine_chunks()]))

    assert refused.select(["index", "status"]).to_pylist() == [
        {"index": 1, "status": "conflict"},
        {"index": 2, "status": "rejected"},
    ]
    assert answered.items.select(["index", "version", "tag"]).to_pylist() == [
        {"index": 0, "version": 1, "tag": b""},
        {"index": 1, "version": 9, "tag": b""},
    ]
    assert answered.rejected["index"].to_pylist() == [2]
    assert client.read_columns("latest", pa.array([], pa.binary())).items.num_rows == 0
    assert client.write_table("latest", table.slice(0, 0)).num_rows == 0


def test_columns_come_from_the_generation_that_is_named(server: RunningServer) -> None:
    """Or not at all, at once."""
    client = server.client()
    client.write("latest", ITEMS)
    generation = client.namespace("latest").generation

    assert client.read_columns("latest", KEYS, generation).items.num_rows == len(ITEMS)
    with pytest.raises(GenerationChanged, match=f"409.* generation is {generation}, not another"):
        client.read_columns("latest", KEYS, "another")


def test_a_table_is_written_in_the_generation_that_is_named(server: RunningServer) -> None:
    """Or not at all, at once."""
    client = server.client()
    generation = client.namespace("latest").generation
    table = pa.table({"key": [b"k"], "version": [1], "value": [b"v"], "expires_at_ms": [NOON_MS + 1]})

    assert client.write_table("latest", table, generation).num_rows == 0
    with pytest.raises(GenerationChanged, match=f"409.* generation is {generation}, not another"):
        client.write_table("latest", table, "another")


def test_several_items_of_a_key_come_in_their_order(server: RunningServer) -> None:
    """By (version, tag), each with the index of its key."""
    client = server.client()
    client.write("all", [item(b"a", 2), item(b"b", 5), item(b"a", 1, b"z"), item(b"a", 1, b"y")])

    found = client.read_columns("all", pa.array([b"b", b"a"], pa.binary())).items

    assert found.select(["index", "version", "tag"]).to_pylist() == [
        {"index": 0, "version": 5, "tag": b""},
        {"index": 1, "version": 1, "tag": b"y"},
        {"index": 1, "version": 1, "tag": b"z"},
        {"index": 1, "version": 2, "tag": b""},
    ]


FAULTS = {
    "half a body": half_a_body,
    "a shorter body": shorter_body,
    "no answer": closed,
    "500": status(500),
    "502": status(502),
    "503": status(503),
    "429": status(429, {"Retry-After": "0"}),
    "not ours": status(200),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_reads_and_writes_survive_a_spoilt_answer(client: StorageClient, proxy: Proxy, fault: Fault) -> None:
    """Sent again, also where the first one was carried out: writing an item again changes nothing."""
    proxy.faults[:] = [fault, fault]
    assert client.write("latest", ITEMS) == [OK] * 50
    proxy.faults[:] = [fault]
    answered = client.read_columns("latest", KEYS)
    proxy.faults[:] = [fault]
    state = client.namespace("latest")

    assert answered.items.num_rows == 50
    assert state.name == "latest"
    assert len(proxy.seen) == 7


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("half a body", ServerUnavailable),
        ("no answer", ServerUnavailable),
        ("500", ServerUnavailable),
        ("not ours", AnswerNotUnderstood),
    ],
)
def test_a_delete_that_may_be_done_is_not_repeated(
    client: StorageClient, proxy: Proxy, name: str, error: type[StorageError]
) -> None:
    """It could remove what somebody has written meanwhile."""
    proxy.faults[:] = [FAULTS[name]]

    with pytest.raises(error):
        client.delete("latest", [b"a"])

    assert len(proxy.seen) == 1


@pytest.mark.parametrize("name", ["503", "429"])
def test_a_delete_that_was_not_done_is_repeated(client: StorageClient, proxy: Proxy, name: str) -> None:
    """The answer says so."""
    proxy.faults[:] = [FAULTS[name]]

    assert client.delete("latest", [b"a"]) == [WriteResult(Status.NOT_FOUND)]


def test_attempts_are_bounded(server: RunningServer, proxy: Proxy) -> None:
    """The last error says what was wrong."""
    with StorageClient(proxy.url, server.secrets["writer"], attempts=3) as client:
        proxy.faults[:] = [status(429, {"Retry-After": "0"})] * 5
        with pytest.raises(RateLimited, match="429"):
            client.read("latest", [b"a"])

        assert len(proxy.seen) == 3


@pytest.mark.parametrize("code", [301, 400, 404, 409])
def test_what_does_not_speak_this_api_is_not_asked_again(client: StorageClient, proxy: Proxy, code: int) -> None:
    """A wrong URL stays wrong, and a token does not follow redirects."""
    proxy.faults[:] = [status(code, {"Location": "http://127.0.0.1:1/"})]

    with pytest.raises(AnswerNotUnderstood, match=str(code)):
        client.read("latest", [b"a"])

    assert len(proxy.seen) == 1


def test_refusals_are_reported_and_not_repeated(server: RunningServer, proxy: Proxy) -> None:
    """By their kind."""
    with StorageClient(proxy.url, server.secrets["reads-all"]) as client:
        with pytest.raises(AccessDenied, match="lacks the scope"):
            client.write("all", [item()])
        with pytest.raises(AccessDenied):
            client.namespaces()
    with StorageClient(proxy.url, "nobody-knows-this-token") as client, pytest.raises(AccessDenied):
        client.read("all", [b"a"])
    with StorageClient(proxy.url, server.secrets["writer"]) as client, pytest.raises(NamespaceUnknown, match="other"):
        client.read("other", [b"a"])

    assert len(proxy.seen) == 4


def test_nobody_listening_is_an_error_after_some_attempts() -> None:
    """It names the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    with StorageClient(url, attempts=2) as client, pytest.raises(ServerUnavailable, match=url):
        client.read("latest", [b"a"])


def test_a_store_that_comes_back_is_waited_for(server: RunningServer, store: DictBackend) -> None:
    """503 says when to come again; within the bounds nobody notices."""
    calls = []

    def down_at_first(operation: str) -> None:
        calls.append(operation)
        if len(calls) < 2:
            unavailable(operation)

    store.before = down_at_first

    assert server.client().write("latest", [item()]) == [OK]
    assert calls == ["write", "write"]


def test_a_slow_answer_is_asked_for_again(server: RunningServer, store: DictBackend) -> None:
    """A time-out is not for ever."""
    go_on = threading.Event()
    calls = []

    def slow_at_first(operation: str) -> None:
        calls.append(operation)
        if len(calls) == 1:
            assert go_on.wait(60)

    store.before = slow_at_first
    client = server.client(read_timeout_s=2)

    outcomes = client.write("latest", [item()])
    go_on.set()

    assert outcomes == [OK]
    assert calls == ["write", "write"]


def test_unsettled_items_are_sent_again_by_themselves(server: RunningServer, store: DictBackend) -> None:
    """Not their whole request; the outcomes are in the order of the call."""
    sizes: list[int] = []
    plain = store.write
    store.write = lambda namespace, items, *more: (sizes.append(len(items)), plain(namespace, items, *more))[1]  # type: ignore[method-assign]
    store.answer = [Status.OK, Status.RETRYABLE, Status.REJECTED, Status.IN_DOUBT, Status.CONFLICT, Status.RETRYABLE]

    outcomes = server.client().write("latest", ITEMS[:5])

    assert [outcome.status for outcome in outcomes] == ["ok", "ok", "rejected", "ok", "conflict"]
    assert sizes == [5, 2, 1]


def test_items_that_stay_unsettled_are_reported(server: RunningServer, store: DictBackend) -> None:
    """Plain data has their outcomes; columns raise, because a part must not be taken for the whole."""
    client = server.client(attempts=2)
    store.answer = [Status.IN_DOUBT] * 2
    assert [outcome.status for outcome in client.write("latest", [item()])] == ["in_doubt"]

    store.answer = [Status.RETRYABLE] * 2
    table = pa.table({"key": [b"k"], "version": [1], "value": [b"v"], "expires_at_ms": [NOON_MS + 1]})
    with pytest.raises(ItemsUnsettled, match="1 items"):
        client.write_table("latest", table)


def test_deletes_in_doubt_are_left_to_the_caller(server: RunningServer, store: DictBackend) -> None:
    """As a whole one would be."""
    calls: list[int] = []

    def in_doubt(namespace: object, keys: list[bytes], now_ms: int) -> list[WriteResult]:
        calls.append(len(keys))
        return [WriteResult(Status.IN_DOUBT, "perhaps")] * len(keys)

    store.delete = in_doubt  # type: ignore[assignment]

    assert [outcome.status for outcome in server.client().delete("latest", [b"a", b"b"])] == ["in_doubt"] * 2
    assert calls == [2]


def test_many_threads_share_a_client(server: RunningServer) -> None:
    """Each call has a connection of its own, which the next one takes over."""
    client = server.client(items_per_request=10)
    client.write("latest", ITEMS)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.read_columns("latest", KEYS).items, range(40)))

    assert all(answer.equals(answers[0]) for answer in answers)
    assert answers[0].num_rows == 50


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_compression_changes_nothing_but_the_bytes(server: RunningServer, compression: str) -> None:
    """In both directions."""
    items = [item(b"key-%d" % number, value=bytes(900)) for number in range(50)]
    client = server.client(compression=compression)

    assert client.write("latest", items) == [OK] * 50
    assert [found.items for found in client.read("latest", [sent.key for sent in items])] == [(sent,) for sent in items]


@pytest.mark.parametrize("url", ["localhost:80", "ftp://host", "http://", "http://host/?a=b"])
def test_a_wrong_url_is_reported_before_anything_is_sent(url: str) -> None:
    """With what is expected."""
    with pytest.raises(StorageConfigInvalid, match="http"):
        StorageClient(url)
