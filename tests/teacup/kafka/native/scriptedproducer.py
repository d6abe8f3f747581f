"""A scripted librdkafka producer, which records what C produces. No broker, no threads.

It checks what C owes librdkafka: headers are destroyed exactly once, unless they were taken with a record.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from teacup.kafka.write.native_producer import NativeProducer, RecordCounts
from tests.teacup.kafka.native.scriptedqueue import Message, bound_copy

POINTER, SIZE, INT, TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p
PERSISTED = 2
QUEUE_FULL = -184
PRODUCE, METADATA = 0, 3
_RKT, _PARTITION, _VALUE, _KEY, _FLAGS, _TIME, _HEADERS = 2, 3, 4, 5, 7, 8, 10


class _Memory(ctypes.Structure):
    _fields_ = (("at", POINTER), ("size", SIZE))


class _Given(ctypes.Union):
    _fields_ = (("pointer", POINTER), ("int", INT), ("int64", ctypes.c_int64), ("memory", _Memory), ("pad", TEXT * 8))


class _Argument(ctypes.Structure):
    """`rd_kafka_vu_t`."""

    _fields_ = (("kind", INT), ("given", _Given))


@dataclass
class Produced:
    """What librdkafka has got."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    time: int
    partition: int


@dataclass
class ScriptedProducer:
    """A copy of the library whose librdkafka is this object, with one producer.

    room       how many records the queue takes before it is full
    refuses    the code with which a record is refused, by its value
    produced   in order
    """

    built: Path
    room: int = 1 << 40
    refuses: dict[bytes, int] = field(default_factory=dict)
    produced: list[Produced] = field(default_factory=list)
    headers: dict[int, list[tuple[str, bytes | None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        on_new = ctypes.CFUNCTYPE(INT, POINTER, POINTER, POINTER, POINTER, SIZE)
        self._on_acknowledgement = ctypes.CFUNCTYPE(INT, POINTER, POINTER, POINTER)
        request = (POINTER, INT, TEXT, ctypes.c_int32, ctypes.c_int16, ctypes.c_int16, ctypes.c_int32, SIZE)
        self._on_request = ctypes.CFUNCTYPE(INT, *request, POINTER)
        self._on_response = ctypes.CFUNCTYPE(INT, *request, ctypes.c_int64, INT, POINTER)
        self._on_state = ctypes.CFUNCTYPE(INT, POINTER, ctypes.c_int32, TEXT, TEXT, INT, TEXT, POINTER)
        kinds: dict[str, tuple[Any, ...]] = {
            "topic_new": (POINTER, POINTER, TEXT, POINTER),
            "topic_name": (POINTER, POINTER),
            "topic_destroy": (None, POINTER),
            "headers_new": (POINTER, SIZE),
            "header_add": (INT, POINTER, POINTER, ctypes.c_ssize_t, POINTER, ctypes.c_ssize_t),
            "headers_destroy": (None, POINTER),
            "produceva": (POINTER, POINTER, ctypes.POINTER(_Argument), SIZE),
            "error_code": (INT, POINTER),
            "error_destroy": (None, POINTER),
            "last_error": (INT,),
            "message_status": (INT, POINTER),
            "conf_interceptor_add_on_new": (INT, POINTER, TEXT, on_new, POINTER),
            "interceptor_add_on_acknowledgement": (INT, POINTER, TEXT, self._on_acknowledgement, POINTER),
            "interceptor_add_on_request_sent": (INT, POINTER, TEXT, self._on_request, POINTER),
            "interceptor_add_on_response_received": (INT, POINTER, TEXT, self._on_response, POINTER),
            "interceptor_add_on_broker_state_change": (INT, POINTER, TEXT, self._on_state, POINTER),
        }
        self._kept = {name: ctypes.CFUNCTYPE(*kind)(getattr(self, f"_fake_{name}")) for name, kind in kinds.items()}
        self.teacup = bound_copy(self.built, self._kept)
        self._name = ctypes.create_string_buffer(b"out")
        self._status, self._next, self._code = PERSISTED, 1, 0
        self._acknowledge: Any = None
        self._sent: Any = None
        self._answered: Any = None
        self._changed: Any = None
        self._opaque: int | None = None
        assert self.teacup.conf_init(None, None, None, SIZE(0)) == 0
        self.producer = NativeProducer(self)  # type: ignore[arg-type]

    def acknowledge(self, error: int = 0, status: int = PERSISTED, partition: int = 0) -> None:
        """As a thread of librdkafka does."""
        message = Message(err=error, rkt=1, partition=partition)
        self._status = status
        assert self._acknowledge(1, ctypes.addressof(message), self._opaque) == 0

    def send(self, api: int = PRODUCE) -> None:
        """A request is sent, as a thread of librdkafka does."""
        assert self._sent(1, 3, b"broker", 1, api, 9, 77, 1_000, self._opaque) == 0

    def answer(self, api: int = PRODUCE, error: int = 0) -> None:
        """It is answered, or has failed."""
        assert self._answered(1, -1, b"broker", 1, api, 9, 77, 50, 200, error, self._opaque) == 0

    def change(self, broker: int, state: bytes) -> None:
        """A connection changes its state; bootstrap addresses are broker -1."""
        assert self._changed(1, broker, b"plaintext", b"host", 9092, state, self._opaque) == 0

    def counts(self) -> RecordCounts:
        return self.producer.counts()

    def _fake_conf_interceptor_add_on_new(self, _conf: int, _name: bytes, on_new: Any, opaque: int) -> int:
        return int(on_new(77, None, opaque, None, 0))

    def _fake_interceptor_add_on_acknowledgement(self, handle: int, _name: bytes, call: Any, opaque: int) -> int:
        assert handle == 77
        self._acknowledge, self._opaque = self._on_acknowledgement(ctypes.cast(call, POINTER).value), opaque
        return 0

    def _fake_interceptor_add_on_request_sent(self, handle: int, _name: bytes, call: Any, opaque: int) -> int:
        assert handle == 77
        self._sent, self._opaque = self._on_request(ctypes.cast(call, POINTER).value), opaque
        return 0

    def _fake_interceptor_add_on_response_received(self, handle: int, _name: bytes, call: Any, opaque: int) -> int:
        assert (handle, opaque) == (77, self._opaque)
        self._answered = self._on_response(ctypes.cast(call, POINTER).value)
        return 0

    def _fake_interceptor_add_on_broker_state_change(self, handle: int, _name: bytes, call: Any, opaque: int) -> int:
        assert (handle, opaque) == (77, self._opaque)
        self._changed = self._on_state(ctypes.cast(call, POINTER).value)
        return 0

    def _fake_topic_new(self, handle: int, name: bytes, _conf: int) -> int | None:
        assert handle == 77
        self._topic = name.decode()
        return 1 if name else None

    def _fake_topic_name(self, _topic: int) -> int:
        return ctypes.addressof(self._name)

    def _fake_topic_destroy(self, _topic: int) -> None:
        pass

    def _fake_headers_new(self, _room: int) -> int:
        self._next += 1
        self.headers[self._next] = []
        return self._next

    def _fake_header_add(self, headers: int, name: int, name_size: int, value: int | None, size: int) -> int:
        content = None if value is None else ctypes.string_at(value, size)
        self.headers[headers].append((ctypes.string_at(name, name_size).decode(), content))
        return 0

    def _fake_headers_destroy(self, headers: int) -> None:
        del self.headers[headers]  # a KeyError: destroyed before, or taken

    def _fake_produceva(self, _handle: int, arguments: Any, count: int) -> int | None:
        given = {arguments[at].kind: arguments[at].given for at in range(count)}
        key, value = (
            None if part.memory.at is None else ctypes.string_at(part.memory.at, part.memory.size)
            for part in (given[_KEY], given[_VALUE])
        )
        assert (given[_RKT].pointer, given[_FLAGS].int) == (1, 2)
        self._code = QUEUE_FULL if len(self.produced) >= self.room else self.refuses.get(value or b"", 0)
        if self._code:
            return 1
        headers = self.headers.pop(given[_HEADERS].pointer) if _HEADERS in given else []
        self.produced.append(Produced(self._topic, key, value, headers, given[_TIME].int64, given[_PARTITION].int))
        return None

    def _fake_error_code(self, _error: int) -> int:
        return self._code

    def _fake_error_destroy(self, _error: int) -> None:
        pass

    def _fake_last_error(self) -> int:
        return -186  # RD_KAFKA_RESP_ERR__INVALID_ARG

    def _fake_message_status(self, _message: int) -> int:
        return self._status
