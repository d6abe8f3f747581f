"""TLS handshakes that never end: each is ended in time, one address has only some, and others do not notice."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trustme
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.support.api import served
from tests.support.limitedserver import PATIENT, SOON_S, Limited, everything
from tests.support.waiting import wait_until

PER_CLIENT = 8


@pytest.fixture(scope="module")
def trusting() -> ssl.SSLContext:
    """Makes a client's settings, filled by `certificate`."""
    return ssl.create_default_context()


@pytest.fixture(scope="module")
def certificate(trusting: ssl.SSLContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the servers' certificate, with its key."""
    file: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    authority = trustme.CA()
    authority.configure_trust(trusting)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    return file


@contextmanager
def listening(keys: Limited) -> Iterator[tuple[str, int]]:
    """Serves an application by https; handshakes may take as long as headers."""
    with served(Starlette(routes=[Route("/", lambda request: PlainTextResponse("here"))]), keys) as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


@pytest.fixture(scope="module")
def address(certificate: Path) -> Iterator[tuple[str, int]]:
    """Returns the address of a server with short times."""
    with listening(Limited(tls_certificate=certificate)) as found:
        yield found


@pytest.fixture(scope="module")
def patient_address(certificate: Path) -> Iterator[tuple[str, int]]:
    """Returns the address of a server that waits for longer than any test."""
    with listening(Limited(tls_certificate=certificate, **PATIENT)) as found:
        yield found


def answer(address: tuple[str, int], trusting: ssl.SSLContext, source: str = "127.0.0.1") -> bytes:
    """Returns what a client gets whose handshake is complete."""
    with (
        socket.create_connection(address, timeout=20, source_address=(source, 0)) as plain,
        trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return everything(secure)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "a beginning"])
def test_a_handshake_must_be_complete_in_time(address: tuple[str, int], sent: bytes) -> None:
    """Otherwise it would hold a descriptor for a minute."""
    began = time.monotonic()
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(sent)

        assert everything(connection) == b""
    assert time.monotonic() - began > SOON_S / 2


def test_handshakes_of_one_client_are_bounded(patient_address: tuple[str, int], trusting: ssl.SSLContext) -> None:
    """One too many is closed at once; another client is served meanwhile, and the same one afterwards."""
    with ExitStack() as stack:
        for _ in range(PER_CLIENT):
            stack.enter_context(socket.create_connection(patient_address, timeout=60))
        with socket.create_connection(patient_address, timeout=60) as refused:
            assert everything(refused) == b""
        assert answer(patient_address, trusting, "127.0.0.2").endswith(b"here")

    wait_until(lambda: is_answered(patient_address, trusting))


def is_answered(address: tuple[str, int], trusting: ssl.SSLContext) -> bool:
    try:
        return answer(address, trusting).endswith(b"here")
    except OSError:
        return False


def test_what_is_not_tls_ends_nothing_else(address: tuple[str, int], trusting: ssl.SSLContext) -> None:
    """A client that writes http: in place of https:."""
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"here" not in everything(connection)

    assert answer(address, trusting).endswith(b"here")
