"""The API over HTTP, on a real server: what it answers, whom it refuses, and how."""

from __future__ import annotations

import base64
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPResponse

import pyarrow as pa
import pytest
import requests

from teacup.storage.codecs.arrow import ArrowCodec
from teacup.storage.codecs.codec import compress
from teacup.storage.codecs.json import JsonCodec
from teacup.storage.model import Status
from tests.support.api import NOON_MS, answer_before_body, assert_problem, call, samples
from tests.support.dictbackend import DictBackend, unavailable
from tests.support.storage_server import RunningServer, item, running_server

JSON, ARROW = JsonCodec.media_type, ArrowCodec.media_type
ALL = "/v1/namespaces/all"
VALUE = {"version": 1, "tag": "dA==", "value": "AAEC", "expires_at_ms": NOON_MS + 1_000}


def batch(
    server: RunningServer, operation: str, body: bytes, media_type: str = JSON, **headers: str
) -> requests.Response:
    """Sends a batch on the namespace `all`."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return call(server, "POST", f"{ALL}/items:{operation}", data=body, headers={"Content-Type": media_type, **names})


def test_answers_each_item_in_the_order_of_the_request(server: RunningServer) -> None:
    """As people would do it, in JSON."""
    items = [{**VALUE, "key": key, "value": "AAEC"} for key in ("YQ==", "Yg==")]
    too_large = {**VALUE, "key": "Yw==", "value": base64.b64encode(bytes(1_001)).decode()}
    written = call(server, "POST", f"{ALL}/items:write", json={"items": [items[0], too_large, items[1]]})
    read = call(server, "POST", f"{ALL}/items:read", json={"keys": ["Yg==", "Yw==", "YQ==", ""]})

    assert [result["status"] for result in written.json()["results"]] == ["ok", "rejected", "ok"]
    assert "1001 bytes, at most 1000" in written.json()["results"][1]["reason"]
    assert [result["status"] for result in read.json()["results"]] == ["ok", "not_found", "ok", "rejected"]
    assert read.json()["results"][0]["items"] == [VALUE]


def test_a_single_item_is_put_read_and_deleted(server: RunningServer) -> None:
    """Keys in paths are base64url, here of two bytes that need its own signs."""
    path = f"{ALL}/items/-_8"

    put = call(server, "PUT", path, json=VALUE)
    got = call(server, "GET", path + "=")
    deleted = call(server, "DELETE", path)

    assert (put.status_code, put.json()) == (200, {"status": "ok", "reason": None})
    assert got.json() == {"status": "ok", "reason": None, "items": [VALUE]}
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert_problem(call(server, "GET", path), 404, "no-item")
    assert_problem(call(server, "DELETE", path), 404, "no-item")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (Status.CONFLICT, 409, "conflict"),
        (Status.REJECTED, 422, "rejected"),
        (Status.RETRYABLE, 503, "retryable"),
        (Status.IN_DOUBT, 503, "in-doubt"),
    ],
)
def test_a_single_item_that_is_not_kept_is_a_problem(
    server: RunningServer, store: DictBackend, status: Status, code: int, kind: str
) -> None:
    """What is a status in a batch is a status of HTTP here."""
    store.answer = [status]

    document = assert_problem(call(server, "PUT", f"{ALL}/items/YQ", json=VALUE), code, kind)

    assert document["detail"] == "as the test wants it"


def test_shows_what_a_namespace_keeps(server: RunningServer) -> None:
    """And its state; the floor only goes up."""
    before = call(server, "GET", "/v1/namespaces/kept", "reader").json()
    raised = call(server, "PUT", "/v1/namespaces/kept/retained_from", json={"retained_from": 50}).json()
    lower = call(server, "PUT", "/v1/namespaces/kept/retained_from", json={"retained_from": 20}).json()
    listed = call(server, "GET", "/v1/namespaces", "reader").json()["namespaces"]

    assert before == {
        "name": "kept",
        "keep": "all",
        "bound": 3,
        "retention_ms": 60_000,
        "max_value_bytes": 65_536,
        "generation": before["generation"],
        "retained_from": None,
        "now_ms": NOON_MS,
    }
    assert raised == lower == {**before, "retained_from": 50}
    assert [namespace["name"] for namespace in listed] == ["latest", "all", "kept", "versions"]


def test_an_unknown_namespace_is_distinguished_from_a_wrong_path(server: RunningServer) -> None:
    """A client must not take a typing error for an empty store."""
    document = assert_problem(call(server, "GET", "/v1/namespaces/other"), 404, "no-namespace")

    assert "'other'" in document["detail"]
    assert_problem(call(server, "GET", "/v1/nothing"), 404, "not-found")
    assert_problem(call(server, "PATCH", ALL), 405, "method")


def test_scopes_are_of_a_namespace_or_of_all(server: RunningServer) -> None:
    """401 without a token, 403 where it does not reach."""
    expected: dict[tuple[str | None, str, str], int] = {
        (None, "GET", ALL): 401,
        ("reader", "GET", ALL): 200,
        ("reader", "PUT", f"{ALL}/items/YQ"): 403,
        ("reader", "DELETE", f"{ALL}/items/YQ"): 403,
        ("reads-all", "GET", ALL): 200,
        ("reads-all", "PUT", f"{ALL}/items/YQ"): 403,
        ("only-all", "PUT", f"{ALL}/items/YQ"): 200,
        ("only-all", "PUT", "/v1/namespaces/latest/items/YQ"): 403,
        ("only-all", "GET", "/v1/namespaces/latest"): 403,
        ("only-all", "GET", "/v1/namespaces/other"): 403,
        ("only-all", "GET", "/v1/namespaces"): 403,
        ("only-all", "GET", "/metrics"): 403,
        (None, "GET", "/metrics"): 401,
        (None, "GET", "/livez"): 200,
        (None, "GET", "/readyz"): 200,
    }

    found = {
        (who, method, path): call(server, method, path, who, **({"json": VALUE} if method == "PUT" else {})).status_code
        for who, method, path in expected
    }

    assert found == expected


def test_an_unknown_token_is_refused_everywhere(server: RunningServer) -> None:
    """Even if the namespace is unknown: strangers learn nothing."""
    wrong = {"Authorization": "Bearer a-token-that-nobody-made"}

    for path in (ALL, "/v1/namespaces/other", "/v1/namespaces"):
        assert_problem(call(server, "GET", path, None, headers=wrong), 401, "unauthenticated")


def test_wrong_bodies_are_refused(server: RunningServer) -> None:
    """With what is wrong, and nothing done."""
    for body in (b"{", b'{"keys":'):
        assert_problem(batch(server, "read", body), 400, "malformed")
    for body in (b"[]", b'{"keys":[1]}', b'{"keys":["%"]}', b'{"keys":[],"more":1}'):
        assert_problem(batch(server, "read", body), 422, "invalid")
    for body in (b"", b"ARROW1", ArrowCodec().encode_keys([b"k"])[:-10]):
        assert_problem(batch(server, "read", body, ARROW), 400, "malformed")
    assert_problem(batch(server, "read", ArrowCodec().encode_items([item()]), ARROW), 422, "invalid")
    assert_problem(batch(server, "read", b"", "text/plain"), 415, "media-type")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("items/YQ", b'{"version": 1, "value": "YQ", "expires_at_ms": 2, "version": 3}'),
        ("retained_from", b'{"retained_from": 1, "retained_from": 2}'),
    ],
)
def test_a_member_that_occurs_twice_is_refused(server: RunningServer, path: str, body: bytes) -> None:
    """Its sender may have meant the first."""
    answer = call(server, "PUT", f"/v1/namespaces/latest/{path}", data=body, headers={"Content-Type": JSON})

    assert "twice" in assert_problem(answer, 400, "malformed")["detail"]


def test_an_answer_comes_as_it_is_asked_for(server: RunningServer) -> None:
    """Accept names the media type; without it, or with any, it is that of the request."""
    body = JsonCodec().encode_keys([b"a"])

    types = {
        accept: batch(server, "read", body, Accept=accept).headers["Content-Type"]
        for accept in ("*/*", JSON, ARROW, f"text/html, {ARROW};q=0.5", f"{ARROW};q=0.1, {JSON}")
    }

    assert list(types.values()) == [JSON, JSON, ARROW, ARROW, JSON]
    assert_problem(batch(server, "read", body, Accept="text/html"), 406, "not-acceptable")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bodies_may_be_compressed_in_both_directions(server: RunningServer, encoding: str) -> None:
    """A body that decompresses beyond the limit is refused."""
    items = [item(bytes([n]), value=bytes(900)) for n in range(100)]
    body = compress(ArrowCodec().encode_items(items), encoding)

    written = batch(server, "write", body, ARROW, Content_Encoding=encoding)
    keys = ArrowCodec().encode_keys([sent.key for sent in items])
    read = batch(server, "read", keys, ARROW, Accept_Encoding=encoding)

    assert len(ArrowCodec().decode_outcomes(written.content)) == 100
    assert read.headers["Content-Encoding"] == encoding
    assert int(read.headers["Content-Length"]) < 90_000
    other = assert_problem(batch(server, "write", body, ARROW, Content_Encoding="br"), 415, "media-type")
    assert other["detail"] == "Content-Encoding 'br' is not understood; send zstd or gzip"


def test_too_much_is_refused(store: DictBackend) -> None:
    """413 for items, bytes, and bytes after decompression."""
    with running_server(store, max_items=5, max_body_bytes=10_000) as small:
        many = JsonCodec().encode_keys([b"k"] * 6)
        large = JsonCodec().encode_keys([bytes(8_000)])
        bomb = compress(JsonCodec().encode_keys([bytes(80_000)]), "zstd")

        assert_problem(batch(small, "read", many), 413, "too-large")
        assert_problem(batch(small, "read", large), 413, "too-large")
        assert_problem(batch(small, "read", bomb, Content_Encoding="zstd"), 413, "too-large")


def test_refuses_before_the_body_is_read(server: RunningServer) -> None:
    """By token, scope, and the route's own limit."""
    refused: dict[tuple[str, str, str | None, int], int] = {
        ("POST", f"{ALL}/items:write", None, 30 << 20): 401,
        ("POST", f"{ALL}/items:write", "reader", 30 << 20): 403,
        ("POST", f"{ALL}/items:write", "writer", 33 << 20): 413,
        ("POST", f"{ALL}/items:read", "reader", 30 << 20): 413,
        ("POST", f"{ALL}/items:delete", "writer", 30 << 20): 413,
        ("PUT", f"{ALL}/items/YQ", "writer", 1 << 20): 413,
        ("PUT", f"{ALL}/retained_from", None, 50): 401,
        ("PUT", f"{ALL}/retained_from", "writer", 5_000): 413,
    }

    answers = {request: answer_before_body(server, *request) for request in refused}

    assert {request: int(answer.split()[1]) for request, answer in answers.items()} == refused
    assert all(b"application/problem+json" in answer for answer in answers.values())


def begun(server: RunningServer, who: str, body: bytes) -> socket.socket:
    """Opens a connection on which the server reads a body of 9,000 bytes, of which this is the beginning."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    head = f"POST {ALL}/items:read HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nExpect: 100-continue\r\n"
    token = server.headers(who)["Authorization"]
    connection.sendall(f"{head}Authorization: {token}\r\nContent-Length: 9000\r\n\r\n".encode())
    assert connection.recv(65_536).startswith(b"HTTP/1.1 100")
    connection.sendall(body)
    return connection


def test_slow_bodies_hold_no_place(store: DictBackend) -> None:
    """A request counts towards `max_under_way` once its body is complete."""
    with running_server(store, max_under_way=2) as narrow, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(begun(narrow, "reader", b"{"))

        assert batch(narrow, "read", JsonCodec().encode_keys([b"a"])).status_code == 200


def test_the_bodies_of_one_caller_leave_room_for_others(store: DictBackend) -> None:
    """429 for one that holds half of `max_held_bytes`, until its bodies are complete or given up."""
    with running_server(store, max_body_bytes=10_000, max_held_bytes=20_000) as narrow:
        with begun(narrow, "reader", bytes(6_000)), begun(narrow, "reader", bytes(6_000)) as refused:
            answer = HTTPResponse(refused)
            answer.begin()
            detail = answer.read()
            other = batch(narrow, "read", JsonCodec().encode_keys([bytes(6_000)]))

        assert answer.status == 429
        assert b"token reader" in detail
        assert other.status_code == 200
        for _ in range(3):
            begun(narrow, "writer", bytes(6_000)).close()
        with begun(narrow, "reader", bytes(6_000)) as again:
            again.sendall(bytes(3_000))
            assert again.recv(65_536).startswith(b"HTTP/1.1 400 ")


def test_an_answer_that_is_full_leaves_the_rest_to_be_asked_again(store: DictBackend) -> None:
    """Memory stays bounded, and the client gets everything by itself."""
    with running_server(store, max_answer_bytes=4_000) as small:
        items = [item(bytes([n]), value=bytes(1_000)) for n in range(10)]
        client = small.client()
        client.write("all", items)
        keys = [sent.key for sent in items]

        answer = batch(small, "read", JsonCodec().encode_keys(keys)).json()["results"]
        everything = client.read_columns("all", pa.array(keys)).items

        assert [result["status"] for result in answer] == ["ok"] * 4 + ["retryable"] * 6
        assert everything["index"].to_pylist() == list(range(10))


def test_more_requests_than_are_allowed_at_once_must_wait(store: DictBackend) -> None:
    """429 with Retry-After, at once; those under way are finished. One caller leaves half of the places to others."""
    begun, go_on = threading.Barrier(3), threading.Event()

    def hold(operation: str) -> None:
        if operation == "read":
            begun.wait(60)
            assert go_on.wait(60)

    store.before = hold
    body = JsonCodec().encode_keys([b"a"])
    with running_server(store, max_under_way=4) as narrow, ThreadPoolExecutor(3) as pool:
        under_way = [pool.submit(batch, narrow, "read", body) for _ in range(2)]
        begun.wait(60)

        refused = batch(narrow, "read", body)
        alive = call(narrow, "GET", "/livez", None)
        counted = samples(narrow)["teacup_storage_under_way",]
        other = pool.submit(call, narrow, "DELETE", f"{ALL}/items/YQ", "only-all")
        go_on.set()

        assert other.result().status_code == 404
        assert_problem(refused, 429, "too-many")
        assert refused.headers["Retry-After"] == "1"
        assert alive.status_code == 200
        assert counted == 2
        assert [answer.result().status_code for answer in under_way] == [200, 200]


def test_a_caller_beyond_its_rate_must_wait(store: DictBackend) -> None:
    """By token: others are not held up."""
    with running_server(store, requests_per_s=0.001, burst=1) as slow:
        first = call(slow, "GET", ALL, "reader")
        second = call(slow, "GET", ALL, "reader")
        other = call(slow, "GET", ALL, "writer")

        assert first.status_code == other.status_code == 200
        assert_problem(second, 429, "too-many")
        assert int(second.headers["Retry-After"]) > 0


def test_a_store_that_does_not_answer_is_a_problem_and_not_ready(server: RunningServer, store: DictBackend) -> None:
    """503 with Retry-After; the process itself is alive."""
    store.before = unavailable

    refused = batch(server, "read", JsonCodec().encode_keys([b"a"]))

    assert_problem(refused, 503, "unavailable")
    assert int(refused.headers["Retry-After"]) > 0
    assert_problem(call(server, "GET", "/readyz", None), 503, "unavailable")
    assert call(server, "GET", "/livez", None).status_code == 200


def test_a_defect_keeps_its_trace_to_itself(server: RunningServer, store: DictBackend) -> None:
    """500 as a problem; the next request is answered."""

    def defect(operation: str) -> None:
        store.before = lambda _: None
        raise RuntimeError("secret")

    store.before = defect

    document = assert_problem(batch(server, "read", JsonCodec().encode_keys([b"a"])), 500, "defect")

    assert "secret" not in str(document)
    assert batch(server, "read", JsonCodec().encode_keys([b"a"])).status_code == 200


def test_counts_items_by_what_became_of_them(server: RunningServer) -> None:
    """By namespace and operation; requests by route, not by path."""
    batch(server, "write", JsonCodec().encode_items([item(b"a"), item(b"b"), item(b"")]))
    batch(server, "read", JsonCodec().encode_keys([b"a", b"c"]))

    counted = samples(server)

    assert counted["teacup_storage_items_total", "all", "write", "ok"] == 2
    assert counted["teacup_storage_items_total", "all", "write", "rejected"] == 1
    assert counted["teacup_storage_items_total", "all", "read", "not_found"] == 1
    assert counted["teacup_storage_seconds_count", "read"] == 1
    assert counted["teacup_storage_requests_total", "POST", "/v1/namespaces/{namespace}/items:read", "200"] == 1
