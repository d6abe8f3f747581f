"""Replaces librdkafka's queue: C takes from it the records that a test has scripted. No broker, no threads.

It checks what C owes librdkafka: each message is destroyed exactly once, and nothing is read from it afterwards (its
memory is freed then, which the address sanitizer sees).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teacup.kafka.native import library

_C = ctypes.CDLL(None)
_C.malloc.restype, _C.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
_C.free.restype, _C.free.argtypes = None, (ctypes.c_void_p,)


class Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Record:
    """A record, or with an `error` an event."""

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int = -1
    timestamp_type: int = 0
    error: int = 0


def bound_copy(built: Path, functions: dict[str, Any]) -> ctypes.CDLL:
    """A copy of the library with these functions for librdkafka's, by their names without `rd_kafka_`.

    built   a file of its own, so that what is bound here stays here
    """
    teacup = ctypes.CDLL(str(built))
    for name, (result, arguments) in library._SIGNATURES.items():
        function = getattr(teacup, name)
        function.restype, function.argtypes = result, arguments
    names, addresses = teacup.tc_names(), []
    while (name := names[len(addresses)]) is not None:
        given = functions.get(name.decode().removeprefix("rd_kafka_"))
        addresses.append(None if given is None else ctypes.cast(given, ctypes.c_void_p).value)
    teacup.tc_bind((ctypes.c_void_p * len(addresses))(*addresses))
    return teacup


class ScriptedQueue:
    """A copy of the library whose librdkafka is this object. `waiting`: what is still to be taken."""

    def __init__(self, built: Path) -> None:
        """As `bound_copy`."""
        self.waiting: list[Record] = []
        self.alive: dict[int, tuple[Record, list[int]]] = {}  # by the message's address, with what it points to
        made = {name.removeprefix("_fake_"): getattr(self, name) for name in dir(self) if name.startswith("_fake_")}
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        kinds: dict[str, tuple[Any, ...]] = {
            "consume_batch_queue": (ctypes.c_ssize_t, pointer, ctypes.c_int, ctypes.POINTER(pointer), size),
            "message_destroy": (None, pointer),
            "message_timestamp": (ctypes.c_int64, pointer, ctypes.POINTER(ctypes.c_int)),
            "message_headers": (ctypes.c_int, pointer, ctypes.POINTER(pointer)),
            "header_get_all": (
                *(ctypes.c_int, pointer, size),
                *(ctypes.POINTER(pointer), ctypes.POINTER(pointer), ctypes.POINTER(size)),
            ),
            "message_errstr": (pointer, pointer),
        }
        self._kept = {name: ctypes.CFUNCTYPE(*kind)(made[name]) for name, kind in kinds.items()}
        self._text = ctypes.create_string_buffer(b"what happened")
        self.teacup = bound_copy(built, self._kept)

    def put(self, records: Sequence[Record]) -> None:
        """In place of what an earlier test has left."""
        self.waiting = list(records)

    def _copy(self, owned: list[int], value: bytes | None) -> int | None:
        """Into memory of exactly this size, freed with the message."""
        if value is None:
            return None
        at: int = _C.malloc(len(value))
        ctypes.memmove(at, value, len(value))
        owned.append(at)
        return at

    def _fake_consume_batch_queue(self, _queue: int, _timeout: int, to: Any, room: int) -> int:
        taken, self.waiting = self.waiting[:room], self.waiting[room:]
        for at, record in enumerate(taken):
            owned: list[int] = []
            address = _C.malloc(ctypes.sizeof(Message))
            message = Message.from_address(address)
            message.err, message.offset = record.error, record.offset
            message.key, message.key_len = self._copy(owned, record.key), len(record.key or b"")
            message.payload, message.len = self._copy(owned, record.value), len(record.value or b"")
            self.alive[address] = record, owned
            to[at] = address
        return len(taken)

    def _fake_message_destroy(self, address: int) -> None:
        for owned in self.alive.pop(address)[1]:  # a KeyError: it was destroyed before
            _C.free(owned)
        _C.free(address)

    def _fake_message_timestamp(self, address: int, kind: Any) -> int:
        kind[0] = self.alive[address][0].timestamp_type
        return self.alive[address][0].timestamp

    def _fake_message_headers(self, address: int, headers: Any) -> int:
        if not self.alive[address][0].headers:
            return -156  # RD_KAFKA_RESP_ERR__NOENT
        headers[0] = address
        return 0

    def _fake_header_get_all(self, address: int, at: int, name: Any, value: Any, size: Any) -> int:
        record, owned = self.alive[address]
        if at >= len(record.headers):
            return -156
        name[0] = self._copy(owned, record.headers[at][0] + b"\0")
        value[0], size[0] = self._copy(owned, record.headers[at][1]), len(record.headers[at][1] or b"")
        return 0

    def _fake_message_errstr(self, _address: int) -> int:
        return ctypes.addressof(self._text)
