"""What is added to urllib3's pool, and what is relied on there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from datadelay.client import DelayClient
from datadelay.errors import ConfigInvalid, DelayServerUnavailable

_ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 39\r\n\r\n{"now_ms": 1, "now": "", "delays": [ ]}'


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Listens, and accepts nothing by itself."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(20)
        yield made


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


class Answering:
    """Answers so many requests on each of the next connections, then closes it. `asked`: what has arrived."""

    def __init__(self, listener: socket.socket, per_connection: list[int]) -> None:
        self.asked: list[bytes] = []
        self.closed = threading.Semaphore(0)  # counts the connections that were
        self._listener, self._per_connection = listener, per_connection
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Answering:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(20)

    def _serve(self) -> None:
        for count in self._per_connection:
            connection, _ = self._listener.accept()
            with connection:
                for _ in range(count):
                    self.asked.append(connection.recv(65_536))
                    connection.sendall(_ANSWER)
            self.closed.release()


def test_a_connection_is_used_again_until_the_server_closes_it(listener: socket.socket) -> None:
    """One that was closed meanwhile is replaced before anything is sent: no call fails, though none is repeated."""
    with Answering(listener, [2, 1]) as server, DelayClient(url_of(listener), retries=0) as client:
        assert client.list() == client.list() == ()
        assert server.closed.acquire(timeout=20)
        assert client.list() == ()

    assert len(server.asked) == 3


@pytest.mark.parametrize(("call", "connections"), [("list", 2), ("forget", 1)])
def test_a_server_that_ends_drops_who_waits_in_its_backlog(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, call: str, connections: int
) -> None:
    """It has not seen the request, but the client cannot tell: only what may be done twice is repeated."""
    url = url_of(listener)
    connected: list[object] = []
    connect = socket.socket.connect

    def counted(each: socket.socket, address: object) -> None:
        connected.append(address)
        connect(each, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", counted)
    ends = threading.Timer(0.2, listener.close)
    ends.start()

    with DelayClient(url, retries=1) as client, pytest.raises(DelayServerUnavailable) as raised:
        client.list() if call == "list" else client.forget("feeder", "impressions")

    assert len(connected) == connections
    assert ("Connection refused" if connections == 2 else "closed the connection") in str(raised.value)


def test_the_proxy_of_the_environment_is_asked(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its user's name, and only for hosts that are not excepted."""
    proxy = url_of(listener).replace("//", "//ada:secret@")
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "delay.inside")

    with (
        Answering(listener, [1]) as server,
        closing(DelayClient("http://delay.example:8710", "a-token", retries=0)) as client,
    ):
        assert client.list() == ()
    with (
        closing(DelayClient("http://delay.inside:8710", retries=0, connect_timeout_s=0.1)) as client,
        pytest.raises(DelayServerUnavailable),
    ):
        client.list()

    (request,) = server.asked
    assert request.startswith(b"GET http://delay.example:8710/v1/delays HTTP/1.1\r\n")
    assert b"Authorization: Bearer a-token\r\n" in request
    assert b"Basic YWRhOnNlY3JldA==" in request


def test_missing_certificates_of_the_environment_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their variable, before anything is sent."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/missing.pem")

    with pytest.raises(ConfigInvalid, match=r"REQUESTS_CA_BUNDLE '/missing\.pem'"):
        DelayClient("https://127.0.0.1:1")
    DelayClient("https://127.0.0.1:1", verify=False).close()
