"""What the proxy's configuration bounds before a server sees it, with shorter times; and what passes as it was sent."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trustme

from teacup.storage.codecs.arrow import ArrowCodec
from tests.attack.attacks import LARGE_KEYS
from tests.attack.proxy import in_front_of
from tests.attack.targets import Target, storage_target
from tests.support.delay_server import running_server
from tests.support.limitedserver import everything

pytestmark = pytest.mark.slow

SOON_S = 1.0
PER_CLIENT = 8
_ASKED = 8
_ANSWER_BYTES = 4 << 20  # max_answer_bytes
SHORTER = {
    "timeout http-request 10s": f"timeout http-request {SOON_S:g}s",
    "timeout client 30s": f"timeout client {2 * SOON_S:g}s",
    "sc0_conn_cur gt 200": f"sc0_conn_cur gt {PER_CLIENT}",
}
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Starts a server."""
    with storage_target(tmp_path_factory.mktemp("storage")) as running:
        yield running


@pytest.fixture(scope="module")
def address(target: Target) -> Iterator[tuple[str, int]]:
    """Starts a proxy in front of it, without TLS; returns where it listens."""
    with in_front_of("storage", target.victim.port, target.log.parent, target.log, changes=SHORTER) as (port, _):
        yield "127.0.0.1", port


def connected(address: tuple[str, int], source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(address, timeout=20, source_address=(source, 0))


def opened(address: tuple[str, int], source: str, count: int, stack: ExitStack) -> list[socket.socket]:
    """Opens so many connections from one address; returns those that are not closed at once."""
    made = []
    for _ in range(count):
        with suppress(ConnectionResetError):
            made.append(stack.enter_context(connected(address, source)))
    time.sleep(SOON_S / 4)
    closed, _, _ = select.select(made, [], [], 0)
    return [each for each in made if each not in closed]


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nHost:"], ids=["nothing", "half"])
def test_a_header_must_come_in_time(address: tuple[str, int], sent: bytes) -> None:
    """Otherwise the connection is closed."""
    began_s = time.monotonic()
    with connected(address) as connection:
        connection.sendall(sent)

        assert b" 200 " not in everything(connection)
    assert time.monotonic() - began_s < 5 * SOON_S


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * 70_000,
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000,
        b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 200,
    ],
    ids=["URL", "header", "headers"],
)
def test_a_header_is_bounded(address: tuple[str, int], sent: bytes) -> None:
    """It is refused before the server sees it."""
    with connected(address) as connection:
        connection.sendall(sent)

        assert b" 400 " in everything(connection)[:20]


def test_connections_of_one_client_are_bounded(address: tuple[str, int]) -> None:
    """More are closed at once; another client is served meanwhile."""
    with ExitStack() as stack:
        assert len(opened(address, "127.0.0.3", 2 * PER_CLIENT, stack)) == PER_CLIENT
        with connected(address) as other:
            other.sendall(LIVEZ)
            assert everything(other).endswith(b"ok\n")


def test_an_answer_must_be_taken(address: tuple[str, int], target: Target) -> None:
    """The connection of a client that does not is ended, and the server's with it."""
    method, path, token = target.victim.takes
    body = ArrowCodec().encode_keys(LARGE_KEYS)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    kind = f"Content-Type: {ArrowCodec.media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    with connected(address) as connection:
        connection.sendall(_ASKED * ((head + kind).encode() + body))
        time.sleep(5 * SOON_S)

        assert len(everything(connection)) < _ASKED * _ANSWER_BYTES


def test_a_client_that_has_ended_its_side_gets_its_answer(address: tuple[str, int]) -> None:
    """By itself the server would drop what is not written yet."""
    with connected(address) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)

        assert everything(connection).endswith(b"ok\n")


def test_a_tls_handshake_must_be_complete_in_time(target: Target, tmp_path: Path) -> None:
    """Those of one client are bounded like its connections, and another one is served."""
    authority, trusting, certificate = trustme.CA(), ssl.create_default_context(), tmp_path / "server.pem"
    authority.configure_trust(trusting)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)

    with in_front_of("storage", target.victim.port, tmp_path, target.log, certificate=certificate, changes=SHORTER) as (
        port,
        _,
    ):
        address = ("127.0.0.1", port)
        began_s = time.monotonic()
        with ExitStack() as stack:
            shaking = opened(address, "127.0.0.3", 2 * PER_CLIENT, stack)
            assert len(shaking) == PER_CLIENT
            with connected(address) as plain, trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                secure.sendall(LIVEZ)
                assert everything(secure).endswith(b"ok\n")
            assert time.monotonic() - began_s < 2 * SOON_S
            assert [everything(each) for each in shaking] == [b""] * PER_CLIENT
        assert time.monotonic() - began_s < 5 * SOON_S


def test_callers_without_a_token_are_told_apart_by_their_own_address(tmp_path: Path) -> None:
    """Not by that of the proxy, and not by what they say."""
    with (
        running_server(tmp_path, requests_per_s=0.01, burst=3) as server,
        in_front_of("delay", int(server.url.rpartition(":")[2]), tmp_path, tmp_path / "log", changes=SHORTER) as (
            port,
            _,
        ),
    ):
        address = ("127.0.0.1", port)
        statuses = [status_of_a_stranger(address, "127.0.0.3", said=f"10.0.0.{number}") for number in range(4)]

        assert statuses == [401, 401, 401, 429]
        assert status_of_a_stranger(address, "127.0.0.4", said="127.0.0.3") == 401


def status_of_a_stranger(address: tuple[str, int], source: str, said: str) -> int:
    """Returns the status of a request without a token, from an address, that says it is from another one."""
    with connected(address, source) as connection:
        lines = ["GET /v1/delays HTTP/1.1", "Host: x", f"X-Forwarded-For: {said}", "Connection: close", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        return int(everything(connection).split(b" ", 2)[1])
