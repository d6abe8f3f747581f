"""What the Data Delay API refuses, before it reads more than it must; through a real socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from datadelay.model import Submission
from tests.support.api import answer_before_body, assert_problem, call
from tests.support.delay_server import RunningServer, body_of, running_server

Make = Callable[..., Submission]
ONE = "/v1/delays/feeder/impressions"


def pointers(answer: requests.Response) -> list[str]:
    """Returns what the answer points at."""
    return [part["pointer"] for part in assert_problem(answer, 422, "invalid")["errors"]]


def test_refuses_malformed_bodies(server: RunningServer) -> None:
    """None of them leaves a trace in the log, and nothing is stored."""
    headers = {"Content-Type": "application/json"}
    malformed = [
        *(b"{", b"\xff\xfe", b"[" * 50_000),
        b'{"listed_ms": 1, "listed_ms": 2}',
        b'{"partitions": [{"partition": 0, "partition": 1}]}',
    ]
    for content in malformed:
        assert_problem(call(server, "PUT", ONE, data=content, headers=headers), 400, "malformed")

    assert "/body" in pointers(call(server, "PUT", ONE, data=b"[]", headers=headers))
    assert "/body/listed_ms" in pointers(call(server, "PUT", ONE, data=b"{}", headers=headers))
    assert_problem(call(server, "GET", ONE), 404, "no-delay")


def test_points_at_the_value_that_is_not_allowed(server: RunningServer, submission: Make) -> None:
    """No coercion: a time as text or as a fraction is a defect of the sender. PostgreSQL stores no NUL."""
    partition = {"partition": 0, "position": 1, "watermark_ms": None}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"listed_ms": 1.5}, "/body/listed_ms"),
        ({"listed_ms": "1795176000000"}, "/body/listed_ms"),
        ({"listed_ms": True}, "/body/listed_ms"),
        ({"consumed_until_ms": -(2**62)}, "/body/consumed_until_ms"),
        ({"consumed_until_ms": 10**400}, "/body/consumed_until_ms"),
        ({"caught_up": "yes"}, "/body/caught_up"),
        ({"typo": 1}, "/body/typo"),
        ({"generation": "a\0"}, "/body/generation"),
        ({"generation": "\ud800"}, "/body/generation"),
        ({"generation": "x" * 1_001}, "/body/generation"),
        ({"store_generation": "a\0"}, "/body/store_generation"),
        ({"consumed_until_ms": None, "reason": "a\0"}, "/body/reason"),
        ({"partitions": [{**partition, "reason": "a\0"}]}, "/body/partitions/0/reason"),
        ({"partitions": [{**partition, "position": -1001, "watermark_ms": 0}]}, "/body/partitions/0/position"),
    ]

    found = [pointers(call(server, "PUT", ONE, json=body_of(submission()) | change)) for change, _ in changes]

    assert [change for change, at in zip(changes, found, strict=True) if change[1] not in at] == []


def test_points_at_a_note_that_is_not_allowed(server: RunningServer, submission: Make) -> None:
    """As at any other text."""
    server.client().submit(submission())

    for note in ("a\0", "\ud800", "", "x" * 201):
        assert pointers(call(server, "POST", ONE + "/rewind", json={"note": note})) == ["/body/note"]


def test_points_at_the_query_that_is_not_allowed(server: RunningServer) -> None:
    """Before anything is looked up."""
    queries = {
        "?partitions=8": "/query/partitions",
        "/history?limit=0": "/query/limit",
        "/history?limit=2001": "/query/limit",
        "/history?limit=ten": "/query/limit",
        "/history?before=0": "/query/before",
        "/history?since_ms=99999999999999999999": "/query/since_ms",
    }

    found = {query: pointers(call(server, "GET", ONE + query)) for query in queries}

    assert found == {query: [pointer] for query, pointer in queries.items()}


def test_refuses_what_is_not_a_number(server: RunningServer, submission: Make) -> None:
    """NaN is not JSON, and not a time either."""
    text = json.dumps(body_of(submission()) | {"consumed_until_ms": float("nan")})

    answer = call(server, "PUT", ONE, data=text, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 422)
    assert_problem(call(server, "GET", ONE), 404, "no-delay")


def test_refuses_unknown_paths_and_methods_as_problems(server: RunningServer) -> None:
    """405 names the methods allowed by all routes of the path."""
    assert_problem(call(server, "GET", "/nowhere"), 404, "not-found")
    wrong = call(server, "PATCH", ONE)
    assert_problem(wrong, 405, "method")
    assert wrong.headers["Allow"] == "GET, PUT, DELETE"
    for name in ("a%20b", "a%00", "%ff", "x" * 250):
        assert_problem(call(server, "GET", f"/v1/delays/{name}/t"), 422, "invalid")


def test_refuses_two_tokens_in_one_request(server: RunningServer) -> None:
    """A proxy in front may have looked at the other one."""
    token = f"Authorization: {server.headers('reader')['Authorization']}\r\n"
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET /v1/delays HTTP/1.1\r\nHost: x\r\n{token}Authorization: Bearer wrong\r\n\r\n".encode())
        answer = connection.recv(65_536)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"two Authorization headers" in answer


def test_readers_may_not_write_and_strangers_may_nothing(server: RunningServer, submission: Make) -> None:
    """401 asks for a token, 403 for another one; a wrong scheme counts as a wrong token."""
    content = body_of(submission())
    for who in (None, "reader"):
        status, kind = (401, "unauthenticated") if who is None else (403, "forbidden")
        assert_problem(call(server, "PUT", ONE, who, json=content), status, kind)
        assert_problem(call(server, "POST", ONE + "/rewind", who, json={}), status, kind)
        assert_problem(call(server, "DELETE", ONE, who), status, kind)
    for path in ("/v1/delays", ONE, ONE + "/history", "/metrics"):
        refused = call(server, "GET", path, None)
        assert_problem(refused, 401, "unauthenticated")
        assert refused.headers["WWW-Authenticate"].startswith("Bearer ")
        for wrong in ("Bearer wrong", "Bearer", "Basic YTpi", f"Basic {server.secrets['writer']}", "Bearer é"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert_problem(call(server, "GET", path, None, headers=headers), 401, "unauthenticated")
    for path in ("/livez", "/readyz", "/", "/openapi.json"):
        assert call(server, "GET", path, None).status_code == 200


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[RunningServer]:
    """Runs a server with tight limits, open to readers."""
    with running_server(tmp_path, max_body_bytes=10_000, requests_per_s=0.5, burst=20, anonymous=["read"]) as running:
        yield running


def test_refuses_bodies_beyond_the_limit_declared_or_not(small_server: RunningServer) -> None:
    """413 before the body is read; for a chunked body as soon as it is too long."""
    declared = call(small_server, "PUT", ONE, data=b" " * 10_001, headers={"Content-Type": "application/json"})
    chunks = (b" " * 1_000 for _ in range(11))
    chunked = call(small_server, "PUT", ONE, data=chunks, headers={"Content-Type": "application/json"})

    assert_problem(declared, 413, "too-large")
    assert_problem(chunked, 413, "too-large")


def test_refuses_bodies_of_many_values_unparsed(server: RunningServer) -> None:
    """They would take the event loop hundreds of milliseconds; the largest topic is far below."""
    for value in ("1", "[]", '{"a":1}'):
        body = f'{{"partitions":[{",".join([value] * 90_000)}]}}'

        answer = call(server, "PUT", ONE, data=body, headers={"Content-Type": "application/json"})

        assert "commas and brackets" in assert_problem(answer, 413, "too-large")["detail"]


def test_refuses_objects_of_many_members(server: RunningServer) -> None:
    """They would take the event loop as long; so would the search for one that occurs twice."""
    members = ",".join(['"a":0'] * 101)

    answer = call(server, "PUT", ONE, data=f"{{{members}}}", headers={"Content-Type": "application/json"})

    assert "at most 100 members" in assert_problem(answer, 413, "too-large")["detail"]


def test_refuses_before_the_body_is_read(small_server: RunningServer) -> None:
    """By token, scope, and the route's own limit; strangers cannot make the server parse anything."""
    refused: dict[tuple[str, str, str | None, int], int] = {
        ("PUT", ONE, None, 5_000): 401,
        ("PUT", ONE, "reader", 5_000): 403,
        ("PUT", ONE, "writer", 10_001): 413,
        ("POST", f"{ONE}/rewind", None, 50): 401,
        ("POST", f"{ONE}/rewind", "writer", 5_000): 413,
    }

    answers = {request: answer_before_body(small_server, *request) for request in refused}

    assert {request: int(answer.split()[1]) for request, answer in answers.items()} == refused
    assert all(b"application/problem+json" in answer for answer in answers.values())


def test_survives_a_body_that_never_comes(small_server: RunningServer) -> None:
    """Connections that are cut in the middle of a body affect nothing else."""
    address = ("127.0.0.1", int(small_server.url.rsplit(":", 1)[1]))
    for _ in range(5):
        with socket.create_connection(address, timeout=5) as connection:
            token = small_server.secrets["writer"]
            head = f"PUT {ONE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 500\r\n\r\n{{"
            connection.sendall(head.encode())

    assert call(small_server, "GET", "/v1/delays").json()["delays"] == []


def test_limits_the_rate_of_each_caller_apart(small_server: RunningServer) -> None:
    """429 says when to retry; other callers and the probes are not affected."""
    answers = [call(small_server, "GET", "/v1/delays", None) for _ in range(25)]

    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert_problem(refused[0], 429, "too-many")
    assert int(refused[0].headers["Retry-After"]) >= 1
    assert call(small_server, "GET", "/v1/delays", "reader").status_code == 200
    assert call(small_server, "GET", "/livez", None).status_code == 200
