"""The process around an application: its log, signals and clock, and its socket, bound before anything is opened."""

from __future__ import annotations

import errno
import logging
import math
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from teacup.base.clock import ClockReading, WallClock
from teacup.base.errors import ExitCode, SettingsInvalid
from teacup.base.logs import Sparse
from teacup.base.now import Every, read_clocks
from teacup.http.server.config import ServerKeys

logger = logging.getLogger("teacup.http.server.serving")

_BACKLOG = 2048
_SAME_LINE_EVERY_S = 10.0
_CLOCK_LINE_EVERY_S = 60.0


def log_to_standard_error() -> None:
    """Sets up the log of a server's process, from INFO on; the process id tells workers apart.

    A line for each of an attacker's requests would fill the disk, so the same line appears only once in some seconds.
    """
    handler = logging.StreamHandler()
    handler.addFilter(Sparse(_SAME_LINE_EVERY_S))
    form = "%(asctime)s %(process)d %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[handler])


def end_by_signals() -> None:
    """Ends the process with 0 at SIGTERM and Ctrl-C, before it serves and after, as uvicorn raises its signal again."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(ExitCode.DONE))


def _remedy(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"end what listens there (`ss -ltnp 'sport = :{port}'` names it), or give another `port`"
    if error.errno == errno.EACCES:
        return "ports below 1024 need a privilege: give a `port` above"
    return "give a `host` that is an address of this machine, 0.0.0.0 for all of them"


def listen(keys: ServerKeys) -> socket.socket:
    """Returns a listening socket; port 0: any free one. Raises `SettingsInvalid`, also for an unusable certificate."""
    check_certificate(keys.tls_certificate, keys.tls_key)
    if (warning := keys.exposed) is not None:
        logger.warning("%s", warning)
    host, port = keys.host, keys.port
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsInvalid(
            "host, port", [f"cannot listen on host {host!r}, port {port}: {error}; {_remedy(error, port)}"]
        ) from error
    listener.setblocking(False)
    return listener


def check_certificate(certificate: Path | None, own_key: Path | None) -> None:
    """Raises `SettingsInvalid` if the files for https cannot be used, as uvicorn's error would not name the key.

    own_key   None: it is in the certificate's file
    """
    if certificate is None and own_key is None:
        return
    if certificate is None:
        raise SettingsInvalid("tls_key", [f"{own_key} is given without tls_certificate"])
    for key, file in (("tls_certificate", certificate), ("tls_key", own_key or certificate)):
        try:
            file.read_bytes()
        except OSError as error:
            raise SettingsInvalid(key, [f"{file} cannot be read: {error.strerror}"]) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(certificate)
    except ssl.SSLError as error:
        raise SettingsInvalid("tls_certificate", [f"{certificate} holds no certificate in PEM"]) from error
    try:
        context.load_cert_chain(certificate, own_key, password=lambda: "")
    except ssl.SSLError as error:
        file = own_key or certificate
        if error.reason == "KEY_VALUES_MISMATCH":
            what = f"{file} is the key of another certificate than {certificate}"
        else:
            what = f"{file} holds no private key in PEM that needs no password"
        raise SettingsInvalid("tls_key", [what]) from error
    try:
        _shake_hands(context, certificate)
    except ssl.SSLCertVerificationError as error:
        refused = f"{certificate} would be refused by clients: {error.verify_message}"
        raise SettingsInvalid("tls_certificate", [f"{refused}; give another, or correct the clock here"]) from error


def _shake_hands(server: ssl.SSLContext, certificate: Path) -> None:
    """Connects a client in memory that trusts this certificate, whoever signed it, so that its dates are checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(certificate)
    from_server, from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(from_server, from_client)
    for side in (client, server.wrap_bio(from_client, from_server, server_side=True), client):
        with suppress(ssl.SSLWantReadError):  # it waits for the other side
            side.do_handshake()


def url(keys: ServerKeys, listener: socket.socket) -> str:
    """Returns where the server listens, for the log."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if keys.tls_certificate else 'http'}://{host}:{port}"


def uvicorn_config(keys: ServerKeys, app: Any, **more: Any) -> uvicorn.Config:
    """Configures uvicorn for an application: quietly, as /metrics counts the requests. `more`: uvicorn's settings.

    Of its two parsers h11 limits a header, and the trailers of a body; httptools takes less time, but limits neither.
    """
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        ssl_certfile=keys.tls_certificate,
        ssl_keyfile=keys.tls_key,
        timeout_keep_alive=math.ceil(keys.keep_alive_s),
        **more,
    )


class SteadyClock:
    """The time by which a server judges: milliseconds since the epoch, at each call. Thread-safe.

    What was concluded from a time cannot be taken back, and a wall clock may be hours ahead for a second. So while it
    contradicts the monotonic clock (`teacup.base.clock`), time goes on by the latter, and requests are served; the log
    names the clock.

    A clock that was set back is believed once it has run steadily for a minute. So is a clock that was set ahead, if
    something else would contradict it if it were wrong; otherwise it is not believed until the server is started again.

    anchor          a trusted reading of both clocks, by the process that starts the workers
    believes_ahead  whether a clock that was set ahead is believed after a minute
    read            reads both clocks
    """

    def __init__(
        self,
        anchor: tuple[int, int],
        *,
        believes_ahead: bool,
        read: Callable[[], tuple[int, int]] = read_clocks,
    ) -> None:
        self._believes_ahead, self._read = believes_ahead, read
        self._clock = self._anchored(anchor)
        self._last = anchor  # what was returned, and the monotonic clock
        self._lock = threading.Lock()
        self._every = Every(_CLOCK_LINE_EVERY_S, at_once=True)
        self._jumped = False

    def __call__(self) -> int:
        with self._lock:
            wall_ms, monotonic_ms = self._read()
            if monotonic_ms < self._last[1]:  # of a restored machine: time goes on from what was returned last
                self._clock = self._anchored((self._last[0], monotonic_ms))
            reading = self._clock.read(wall_ms, monotonic_ms)
            self._last = reading.steady_ms, monotonic_ms
            self._say(reading)
        return reading.steady_ms

    def _anchored(self, anchor: tuple[int, int]) -> WallClock:
        return WallClock(anchor, ahead_ms=None if self._believes_ahead else math.inf)

    def _say(self, reading: ClockReading) -> None:
        if reading.confirmed:
            if self._jumped:
                logger.warning("%s", reading.reason or "the wall clock of this machine agrees again")
                self._every = Every(_CLOCK_LINE_EVERY_S, at_once=True)
        elif self._every.due():
            remedy = "" if self._believes_ahead else "; if it is right now, start this server again"
            logger.warning("%s. Until then time goes on by the monotonic clock%s", reading.reason, remedy)
        self._jumped = not reading.confirmed
