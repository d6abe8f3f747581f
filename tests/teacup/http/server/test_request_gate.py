"""The gate and uvicorn together: what of a request is bounded, in size and in time, and what is taken nevertheless."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from teacup.http.server.application import framework, gated
from teacup.http.server.auth import Tokens
from teacup.http.server.limits import HeldBytes
from teacup.http.server.problem_details import install
from teacup.http.server.request_gate import Message, Sending
from tests.support.api import served
from tests.support.limitedserver import PATIENT, SOON_S, Limited, everything

ANSWER_BYTES = 32 << 20


async def _size(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def _refuse(request: Request) -> Response:
    return PlainTextResponse("no", 401)


async def _late(request: Request) -> Response:
    await asyncio.sleep(2 * SOON_S)
    return PlainTextResponse("late")


async def _large(request: Request) -> Response:
    return Response(bytes(ANSWER_BYTES))


@contextmanager
def listening(keys: Limited) -> Iterator[tuple[str, int]]:
    """Serves an application of four routes. Yields where."""
    routes = [
        Route("/size", _size, methods=["POST"]),
        Route("/refuse", _refuse, methods=["POST"]),
        Route("/late", _late, methods=["POST"]),
        Route("/large", _large),
    ]
    tokens = Tokens((), frozenset({"read"}))
    app = framework("Test", "Four routes", routes=routes)
    install(app, {})
    requests = Counter("requests", "", ["method", "route", "status"], registry=None)
    with served(gated(app, keys, tokens, requests), keys) as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Returns the address of a server with short times."""
    with listening(Limited()) as found:
        yield found


@pytest.fixture(scope="module")
def patient_address() -> Iterator[tuple[str, int]]:
    """Returns the address of a server that waits for longer than any test."""
    with listening(Limited(**PATIENT)) as found:
        yield found


@pytest.fixture
def connection(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Opens a connection on which nothing was sent."""
    with socket.create_connection(address, timeout=20) as made:
        yield made


def post(path: str, body: bytes, length: int | None = None) -> bytes:
    """Returns a request, or its beginning."""
    size = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + body


_CHUNKED = b"POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * 90_000,
        b"POST /size HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 90_000,
        b"POST /size HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 30_000,
        _CHUNKED + b"0\r\n" + b"a:\r\n" * 30_000,
    ],
    ids=["URL", "header", "headers", "trailers"],
)
def test_a_header_is_bounded(connection: socket.socket, sent: bytes):
    """Its end never comes; without a limit it would fill the memory."""
    connection.sendall(sent)

    assert connection.recv(12) == b"HTTP/1.1 400"


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_a_request_for_another_protocol_is_answered_by_this_one(connection: socket.socket, protocol: bytes):
    """With its body, and so is the next one on the connection: clients such as Java's ask for HTTP/2 first."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nContent-Length: 3\r\n\r\nabc" % protocol
    connection.sendall(b"POST /size HTTP/1.1\r\nHost: x\r\n" + upgrade + post("/size", b"abcd"))

    answers = b""
    while not answers.endswith(b"4"):
        answers += connection.recv(65_536)

    assert answers.count(b"HTTP/1.1 200 ") == 2
    assert b"\r\n\r\n3HTTP" in answers


def test_a_body_must_come_in_time(connection: socket.socket) -> None:
    """408 as a problem, and the connection is closed."""
    connection.sendall(post("/size", b"abc", 100))

    answer = everything(connection)

    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"application/problem+json" in answer
    assert b"body_within" in answer


def test_single_bytes_do_not_prolong_the_time(connection: socket.socket) -> None:
    """It counts for the whole body."""
    connection.sendall(post("/size", b"", 100))
    answer, ended = b"", time.monotonic() + 10 * SOON_S

    while not answer and time.monotonic() < ended:
        connection.sendall(b"x")
        connection.settimeout(SOON_S / 10)
        with suppress(TimeoutError):
            answer = connection.recv(65_536)

    assert answer.startswith(b"HTTP/1.1 408 ")


def test_time_in_which_the_server_does_not_read_counts_for_nobody(connection: socket.socket) -> None:
    """The body is not complete in time, because the application takes none of it; the peer is not to blame."""
    connection.sendall(post("/late", bytes(5_000_000)))

    assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_body_that_is_not_wanted_is_taken_and_dropped(connection: socket.socket) -> None:
    """So the client finds the answer, and may go on."""
    connection.sendall(post("/refuse", bytes(5_000_000)) + post("/size", b"abc"))

    answers = connection.recv(65_536)
    while not answers.endswith(b"3"):
        answers += connection.recv(65_536)

    assert answers.startswith(b"HTTP/1.1 401")


def test_answers_that_are_not_taken_are_bounded(patient_address: tuple[str, int]) -> None:
    """429 for a caller whose earlier answers wait; another one is answered."""
    with ExitStack() as stack:
        waiting, refused, other = [
            stack.enter_context(socket.create_connection(patient_address, timeout=20, source_address=(host, 0)))
            for host in ("127.0.0.1", "127.0.0.1", "127.0.0.2")
        ]
        for each in (waiting, refused, other):
            each.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            begin = each.recv(12)
            assert begin == (b"HTTP/1.1 429" if each is refused else b"HTTP/1.1 200")


@pytest.mark.parametrize(("size", "pieces"), [(100, [100]), (5 << 19, [1 << 20, 1 << 20, 1 << 19, 0])])
def test_a_large_answer_is_over_when_its_last_piece_is_taken(size: int, pieces: list[int]) -> None:
    """A server waits before it sends the next piece, so the last one, which it need not wait for, is empty."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def answer() -> None:
        sending = Sending(send, HeldBytes(1), "somebody", "/")
        await sending({"type": "http.response.start", "status": 200, "headers": []})
        await sending({"type": "http.response.body", "body": bytes(size)})

    asyncio.run(answer())

    assert [len(message["body"]) for message in sent[1:]] == pieces
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(pieces) - 1) + [False]
