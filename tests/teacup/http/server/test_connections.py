"""Slow, silent and many connections: each is ended in time, and others do not notice."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client import Counter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from teacup.http.server.application import gated
from teacup.http.server.auth import Tokens
from tests.support.api import served
from tests.support.limitedserver import LATER_S, PATIENT, SOON_S, Limited, everything

ANSWER_BYTES = 32 << 20


async def _size(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def _refuse(request: Request) -> Response:
    return PlainTextResponse("no", 401)


async def _late(request: Request) -> Response:
    await asyncio.sleep(1.5 * LATER_S)
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
    app = gated(
        Starlette(routes=routes), keys, tokens, Counter("requests", "", ["method", "route", "status"], registry=None)
    )
    with served(app, keys) as url:
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
def patient(patient_address: tuple[str, int]) -> Iterator[socket.socket]:
    """Opens a connection that only its end can end in time."""
    with socket.create_connection(patient_address, timeout=60) as made:
        yield made


@pytest.fixture
def connection(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Opens a connection on which nothing was sent."""
    with socket.create_connection(address, timeout=20) as made:
        yield made


def post(path: str, body: bytes, length: int | None = None) -> bytes:
    """Returns a request, or its beginning."""
    size = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + body


def sent_until_closed(connection: socket.socket, pieces: Sequence[bytes], pause_s: float = 0.0) -> int:
    """Returns how many pieces the server takes before it closes the connection."""
    for number, piece in enumerate(pieces):
        try:
            connection.sendall(piece)
        except OSError:
            return number
        time.sleep(pause_s)
    return len(pieces)


_CHUNKED = b"POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * 70_000,
        b"POST /size HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000,
        b"POST /size HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 200,
        _CHUNKED + b"a:\r\n" * 200,
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 20,
        _CHUNKED[:-3] + b"1;%b\r\nx\r\n" % (b"x" * 60_000) * 9,
    ],
    ids=["URL", "header", "headers", "trailers", "pipelined", "chunk extensions"],
)
def test_what_is_not_a_body_is_bounded(connection: socket.socket, sent: bytes):
    """Without a limit, some MiB of it would occupy the server for seconds."""
    connection.sendall(sent)

    answer = everything(connection)

    assert b" 431 " in answer or b" 400 " in answer


def test_a_body_in_small_pieces_is_taken(connection: socket.socket):
    """What frames it is little."""
    chunks = b"".join(b"64\r\n%b\r\n" % (b"x" * 100) for _ in range(9))
    connection.sendall(_CHUNKED[:-3] + chunks + b"0\r\n\r\n")

    assert connection.recv(65_536).endswith(b"900")


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_a_connection_is_closed_after_a_request_for_another_protocol(connection: socket.socket, protocol: bytes):
    """Nothing more could be understood on it: a client such as Java's, which asks for HTTP/2, would wait in vain."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\n\r\n" % protocol
    connection.sendall(b"POST /size HTTP/1.1\r\nHost: x\r\n" + upgrade)

    answer = everything(connection)

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer


def test_a_body_beside_a_request_for_another_protocol_is_refused(connection: socket.socket):
    """The parser leaves it out: without a word it would count as empty."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc"
    connection.sendall(b"POST /size HTTP/1.1\r\nHost: x\r\n" + upgrade)

    answer = everything(connection)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Upgrade" in answer


@pytest.mark.parametrize("requests", [1, 3])
def test_a_peer_that_has_ended_its_side_gets_all_answers(patient: socket.socket, requests: int) -> None:
    """The server then closes the connection, and need not wait for another request."""
    patient.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * requests)
    patient.shutdown(socket.SHUT_WR)

    answer = everything(patient)

    assert answer.count(b"HTTP/1.1 200 OK\r\n") == requests
    assert len(answer) > requests * ANSWER_BYTES


@pytest.mark.parametrize("sent", [post("/size", b"abc", 100), b"", b"GET /lar"], ids=["body", "nothing", "header"])
def test_a_peer_that_has_ended_its_side_too_early_is_not_waited_for(patient: socket.socket, sent: bytes) -> None:
    """What it began can never be complete."""
    patient.sendall(sent)
    patient.shutdown(socket.SHUT_WR)

    assert everything(patient) == b""


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        (b"GARBAGE\r\n\r\n", b"this is not a request in HTTP/1.1"),
        (b"POST /size HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 200, b"more than 100 headers"),
    ],
)
def test_what_is_no_request_is_answered_with_a_problem(connection: socket.socket, sent: bytes, detail: bytes) -> None:
    """Like every other refusal."""
    connection.sendall(sent)

    answer = everything(connection)

    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"application/problem+json" in answer
    assert b'"type":"/problems/malformed"' in answer
    assert detail in answer


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"POST /size HTTP/1.1\r\nHost:"], ids=["nothing", "a line", "half"])
def test_a_header_must_come_in_time(connection: socket.socket, sent: bytes) -> None:
    """Otherwise the connection is closed."""
    connection.sendall(sent)

    assert everything(connection) == b""


def test_single_bytes_do_not_prolong_the_time(connection: socket.socket) -> None:
    """It counts from the first of them."""
    bytes_of_header = [bytes([byte]) for byte in b"GET /size HTTP/1.1\r\nX: " + b"x" * 1_000]

    sent = sent_until_closed(connection, bytes_of_header, pause_s=0.05)

    assert sent < len(bytes_of_header)


def test_a_second_request_has_its_own_time(connection: socket.socket) -> None:
    """Between two requests only keep-alive counts; a second header must come in time as well."""
    connection.sendall(post("/size", b"abc"))
    first = connection.recv(65_536)
    time.sleep(2 * SOON_S)
    connection.sendall(post("/size", b"abcd"))
    second = connection.recv(65_536)
    connection.sendall(b"POST /size")

    assert first.endswith(b"3")
    assert second.endswith(b"4")
    assert everything(connection) == b""


def test_a_body_must_come_in_time(connection: socket.socket) -> None:
    """408 as a problem, and the connection is closed."""
    connection.sendall(post("/size", b"abc", 100))

    answer = everything(connection)

    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"application/problem+json" in answer
    assert b"body_within" in answer


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


def test_more_than_a_bound_is_not_dropped(patient: socket.socket) -> None:
    """Somebody who goes on sending after a refusal is cut off."""
    patient.sendall(post("/refuse", b"", 1 << 40))

    sent = sent_until_closed(patient, [bytes(1 << 20)] * 1_000)

    assert sent < 1_000


def test_an_answer_must_be_taken(connection: socket.socket) -> None:
    """It would stay in memory for as long as the peer likes."""
    connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(2 * LATER_S)

    assert len(everything(connection)) < ANSWER_BYTES


def test_an_answer_that_is_taken_slowly_is_completed(connection: socket.socket) -> None:
    """Longer than `answer_within` altogether, but not for a piece of it."""
    connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    received = 0
    while received < ANSWER_BYTES and (piece := connection.recv(1 << 20)):
        received += len(piece)
        time.sleep(2 * LATER_S * len(piece) / ANSWER_BYTES)

    assert received > ANSWER_BYTES


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


def test_connections_of_all_clients_are_bounded() -> None:
    """503 at once for one too many, though nobody has sent anything."""
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    with listening(Limited(max_connections=3, **PATIENT)) as address, ExitStack() as stack:
        for host in hosts:
            stack.enter_context(socket.create_connection(address, timeout=20, source_address=(host, 0)))
        refused = stack.enter_context(socket.create_connection(address, timeout=20, source_address=("127.0.0.4", 0)))

        answer = everything(refused)

    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"max_connections" in answer


def test_connections_of_one_client_are_bounded(patient_address: tuple[str, int]) -> None:
    """503 at once for one too many; others keep theirs, and there is room again when one is closed."""
    with ExitStack() as stack:
        kept = [stack.enter_context(socket.create_connection(patient_address, timeout=20)) for _ in range(8)]
        kept[0].sendall(post("/size", b"abc"))
        assert kept[0].recv(65_536).endswith(b"3")
        with socket.create_connection(patient_address, timeout=20) as refused:
            answer = everything(refused)
        other = stack.enter_context(
            socket.create_connection(patient_address, timeout=20, source_address=("127.0.0.2", 0))
        )
        other.sendall(post("/size", b"abcd"))

        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"max_connections_per_client" in answer
        assert other.recv(65_536).endswith(b"4")
