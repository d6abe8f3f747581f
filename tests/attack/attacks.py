"""What an attacker does, again and again until told to stop; each from an address of its own, and some with a token."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from teacup.storage.codecs.arrow import ArrowCodec, written
from teacup.storage.codecs.codec import compress
from teacup.storage.codecs.json import JsonCodec

T = TypeVar("T")
LARGE_KEYS = [b"large-%d" % number for number in range(300)]
ADDRESS = "127.0.0.2"
MIB = 1 << 20


@dataclass(frozen=True)
class Victim:
    """A server, as attackers know it.

    takes   method and path of its largest bodies, and a token for them, which the attackers have
    """

    name: str
    port: int
    takes: tuple[str, str, str]


Attack = Callable[[Victim, threading.Event], None]


def silent(victim: Victim, stop: threading.Event) -> None:
    """Opens connections on which nothing is ever sent, or a beginning only."""
    _hold(victim, stop, 500, [b"", b"GET /livez HTTP/1.1\r\nHost:"])


def slow_bodies(victim: Victim, stop: threading.Event) -> None:
    """Begins bodies with a valid token, and never goes on."""
    _hold(victim, stop, 60, [_head(victim, MIB - 1) + b"{"])


def unfinished_bodies(victim: Victim, stop: threading.Event) -> None:
    """Sends large bodies with a valid token, without their end."""
    size = 12 * MIB if victim.name == "storage" else MIB
    _hold(victim, stop, 40, [_head(victim, size) + bytes(size - 1)])


def large_bodies_of_strangers(victim: Victim, stop: threading.Event) -> None:
    """Sends JSON of 32 MiB without a token."""
    method, path, _ = victim.takes
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {JsonCodec.media_type}\r\n"
    request = f"{head}Content-Length: {32 * MIB}\r\n\r\n".encode() + b"[" * 32 * MIB
    while not stop.is_set():
        _exchange(victim, request)


def json_bombs(victim: Victim, stop: threading.Event) -> None:
    """Sends JSON that grows many times when it is parsed, or when its errors are listed; a member that occurs twice."""
    size = 13 * MIB if victim.name == "storage" else MIB - 100
    name = b"keys" if victim.name == "storage" else b"partitions"
    members = b'{%b,"69999":0}' % b",".join(b'"%d":0' % number for number in range(70_000))
    for values in _again([b"1,", b"{},", b'"",', b"[[[[[[[[[[[["], stop):
        body = b'{"%b":[%b' % (name, values * ((size - 20) // len(values)))
        ends = body[:-1] + b"]}" if values.endswith(b",") else body
        _exchange(victim, _head(victim, len(ends)) + ends)
        _exchange(victim, _head(victim, len(members)) + members)


def broken_requests(victim: Victim, stop: threading.Event) -> None:
    """Sends what is not a request, or asks for another protocol; each might be a line of the log."""
    upgrade = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    for each in _again([b"GARBAGE\r\n\r\n", upgrade], stop):
        _exchange(victim, each)


def heads(victim: Victim, stop: threading.Event) -> None:
    """Sends a URL, a header, a list of headers, without an end."""
    line = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
    for begin, piece in _again([(b"GET /", b"x"), (line + b"X: ", b"x"), (line, b"a:\r\n")], stop):
        _endless(victim, begin, piece)


def trailers(victim: Victim, stop: threading.Event) -> None:
    """Sends trailers of a chunked body, and extensions of its chunks, without an end."""
    head = b"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    extended = b"1;%b\r\nx\r\n" % (b"x" * 60_000)
    sent = [(b"0\r\n", b"a:\r\n"), (b"0\r\nX: ", b"x"), (b"1;", b"x"), (b"", extended)]
    for begin, piece in _again(sent, stop):
        _endless(victim, head + begin, piece)


def pipelined(victim: Victim, stop: threading.Event) -> None:
    """Sends requests on one connection, without waiting for their answers."""
    method, path, token = victim.takes
    authorized = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n".encode()
    for piece in _again([b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", authorized + b"Content-Length: 2\r\n\r\n{}"], stop):
        _endless(victim, b"", piece)


def chunks(victim: Victim, stop: threading.Event) -> None:
    """Sends bodies in chunks of a byte, with a valid token."""
    method, path, token = victim.takes
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", "Transfer-Encoding: chunked"]
    head = "\r\n".join([*lines, f"Content-Type: {JsonCodec.media_type}", "", ""]).encode()
    while not stop.is_set():
        _endless(victim, head, b"1\r\n[\r\n")


def dictionary_batches(victim: Victim, stop: threading.Event) -> None:
    """Sends a hundred thousand in a body, for a column that has a dictionary, and for one that has none."""
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([b"k"]))
    schema, dictionary, _ = pa.ipc.MessageReader.open_stream(written(pa.record_batch([column], names=["key"])))
    plain, _ = pa.ipc.MessageReader.open_stream(written(pa.record_batch([[b"k"]], names=["key"])))
    once = dictionary.serialize().to_pybytes()
    rest = once * (12 * MIB // len(once)) + struct.pack("<iI", -1, 0)
    for first in _again([schema, plain], stop):
        body = first.serialize().to_pybytes() + rest
        _exchange_at_once(victim, 8, _head(victim, len(body), ArrowCodec.media_type) + body)


def arrow_bombs(victim: Victim, stop: threading.Event) -> None:
    """Sends a small stream of many rows without width, or of views that overlap; compressed on top."""
    keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(0), 200_000_000, [None, pa.py_buffer(b"")])
    view = struct.pack("<i4sii", MIB, bytes(4), 0, 0)
    views = pa.Array.from_buffers(pa.binary_view(), 9_000, [None, pa.py_buffer(view * 9_000), pa.py_buffer(bytes(MIB))])
    plain = [written(pa.record_batch([each], names=["key"])) for each in (keys, views)]
    long = compress(JsonCodec().encode_keys([bytes(20 * MIB)]), "zstd")
    for number in _again(range(4), stop):
        if number == 3:
            _exchange(victim, _head(victim, len(long), JsonCodec.media_type, "zstd") + long)
            continue
        body = plain[min(number, 1)]
        encoding = "zstd" if number == 2 else "identity"
        body = compress(body, "zstd") if number == 2 else body
        _exchange(victim, _head(victim, len(body), ArrowCodec.media_type, encoding) + body)


def answers_not_taken(victim: Victim, stop: threading.Event) -> None:
    """Asks for large answers, of which it reads nothing."""
    body = ArrowCodec().encode_keys(LARGE_KEYS)
    _hold(victim, stop, 12, [_head(victim, len(body), ArrowCodec.media_type) + body])


def full_requests(victim: Victim, stop: threading.Event) -> None:
    """Sends as many large requests as it is allowed, and reads the answers."""
    body = ArrowCodec().encode_keys(LARGE_KEYS)
    request = _head(victim, len(body), ArrowCodec.media_type) + body
    while not stop.is_set():
        _exchange_at_once(victim, 20, request)


def probes(victim: Victim, stop: threading.Event) -> None:
    """Asks for `/readyz`, as fast as it is answered."""
    while not stop.is_set():
        _exchange(victim, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n" * 50)


def _head(victim: Victim, length: int, kind: str = JsonCodec.media_type, encoding: str = "identity") -> bytes:
    method, path, token = victim.takes
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {token}",
        f"Content-Type: {kind}",
        f"Content-Encoding: {encoding}",
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _hold(victim: Victim, stop: threading.Event, count: int, beginnings: list[bytes]) -> None:
    """Keeps so many connections open, on each of which a beginning is sent; a lost one is replaced."""
    held: list[socket.socket] = []
    while not stop.is_set():
        while len(held) < count and not stop.is_set():
            try:
                made = _connected(victim)
                held.append(made)
                made.sendall(beginnings[len(held) % len(beginnings)])
            except OSError:
                break
        time.sleep(0.05)
    for each in held:
        each.close()


def _exchange(victim: Victim, request: bytes) -> None:
    try:
        with _connected(victim) as connection:
            connection.sendall(request)
            connection.recv(65_536)
    except OSError:
        return


def _exchange_at_once(victim: Victim, count: int, request: bytes) -> None:
    with ExitStack() as stack:
        try:
            held = [stack.enter_context(_connected(victim)) for _ in range(count)]
            for each in held:
                each.sendall(request)
            for each in held:
                each.recv(65_536, socket.MSG_WAITALL)
        except OSError:
            return


def _endless(victim: Victim, begin: bytes, piece: bytes) -> None:
    """Sends pieces until the server ends it, or 200 MiB are sent."""
    pieces = piece * (MIB // len(piece))
    try:
        with _connected(victim) as connection:
            connection.sendall(begin)
            for _ in range(200):
                connection.sendall(pieces)
    except OSError:
        return


def _connected(victim: Victim) -> socket.socket:
    return socket.create_connection(("127.0.0.1", victim.port), timeout=3, source_address=(ADDRESS, 0))


def _again(values: Iterable[T], stop: threading.Event) -> Iterator[T]:
    while not stop.is_set():
        yield from values


OF_BOTH: list[Attack] = [slow_bodies, unfinished_bodies, large_bodies_of_strangers, json_bombs, probes, broken_requests]
OF_STORAGE: list[Attack] = [arrow_bombs, dictionary_batches, answers_not_taken, full_requests]
OF_CONNECTIONS: list[Attack] = [silent, heads, trailers, pipelined, chunks]
"""Servers need a proxy against these."""
