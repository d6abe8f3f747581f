"""Protobuf messages as JSON text, by the names in their `.proto` files.

    int32, int64, ... bool, string     a number, true or false, text
    float, double                      a number, null where it is not finite
    bytes                              base64
    enum                               the value's name; its number if the name is unknown
    google.protobuf.Timestamp          ISO 8601 with microseconds: "2026-01-31T12:00:00.250000Z"; null outside the
                                       years 1 to 9999
    message, repeated, map             an object, an array, an object
    optional, oneof, message, not set  null; a field without presence has its default

Each value begins with the path to its message in the schema's file, as indexes. Messages are read one by one, at about
20 us each.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from teacup.kafka.records.ddl import fields_of_message

TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotProtobuf(ValueError):
    """A schema that is not a Protobuf schema."""


@dataclass(frozen=True)
class ProtoSchema:
    """A `.proto` file, with those that it imports. Raises `NotProtobuf`.

    text        the serialized `FileDescriptorProto` in base64, as the registry has it
    references  name and text of the files that it imports, each after those that it imports itself
    """

    text: str
    references: tuple[tuple[str, str], ...] = ()
    _messages: dict[tuple[int, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _ = self._file

    @cached_property
    def _file(self) -> Any:
        pool = descriptor_pool.DescriptorPool()
        try:
            files = [*((name, text) for name, text in self.references), ("teacup.proto", self.text)]
            for name, text in files:
                file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
                file.name = name
                for dependency in file.dependency:
                    if dependency.startswith("google/protobuf/") and not _holds(pool, dependency):
                        pool.AddSerializedFile(_well_known(dependency))
                pool.AddSerializedFile(file.SerializeToString())
            return pool.FindFileByName("teacup.proto")
        except (ValueError, TypeError, KeyError, DecodeError) as error:
            raise NotProtobuf(f"{type(error).__name__}: {error}") from error

    def ddl(self) -> str:
        """Returns the fields of its first message as Spark's DDL. Raises `ValueError`."""
        return fields_of_message(next(iter(self._file.message_types_by_name.values())))

    def json_of(self, values: pa.Array, columns: Sequence[str] | None = None) -> pa.Array:
        """Returns each value (indexes and message) as JSON text; null if it does not fit this schema.

        columns   the top-level fields that are needed; None: all
        """
        return pa.array([self._one(value, columns) for value in values.to_pylist()], pa.string())

    def _one(self, value: bytes, columns: Sequence[str] | None) -> str | None:
        try:
            path, at = _indexes(value)
            message = self._message(path).FromString(value[at:])
            return json.dumps(_plain(message, columns), ensure_ascii=False)
        except (DecodeError, IndexError, ValueError, OverflowError):
            return None

    def _message(self, path: tuple[int, ...]) -> Any:
        if path not in self._messages:
            first, *inner = path
            message = list(self._file.message_types_by_name.values())[first]
            for index in inner:
                message = message.nested_types[index]
            self._messages[path] = message_factory.GetMessageClass(message)
        return self._messages[path]


def _indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the path to the message, and where the message begins. A count of 0 means the first message."""
    count, at = _zigzag(value, 0)
    if count < 0:
        raise ValueError(f"{count} indexes")
    path = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        path.append(index)
    if min(path, default=0) < 0:
        raise ValueError(f"index {min(path)} of a message")
    return tuple(path) or (0,), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _holds(pool: Any, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _well_known(name: str) -> bytes:
    """Returns a file that comes with Protobuf."""
    from importlib import import_module

    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    serialized: bytes = module.DESCRIPTOR.serialized_pb
    return serialized


def _plain(message: Any, columns: Sequence[str] | None = None) -> Any:
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        try:
            at = _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1_000)
        except OverflowError:
            return None
        return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    needed = [member for member in message.DESCRIPTOR.fields if columns is None or member.name in columns]
    return {member.name: _field(member, message) for member in needed}


def _field(member: Any, message: Any) -> Any:
    """Returns a field as it appears in JSON. member: its descriptor."""
    if member.has_presence and not message.HasField(member.name):
        return None
    value = getattr(message, member.name)
    if not member.is_repeated:
        return _value(member, value)
    if member.message_type is not None and member.message_type.GetOptions().map_entry:
        inner = member.message_type.fields_by_name["value"]
        return {_name(key): _value(inner, value[key]) for key in value}
    return [_value(member, item) for item in value]


def _name(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(member: Any, value: Any) -> Any:
    if member.message_type is not None:
        return _plain(value)
    if member.enum_type is not None:
        named = member.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value
