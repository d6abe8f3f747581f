"""Whether bytes are an Avro record, decided in Python, value by value: an oracle for the C library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from teacup.kafka.records.avro_check import SIZES
from teacup.kafka.records.avro_schemas import DECIMAL_BYTES

Skip = Callable[[bytes, int], int]
"""From where a value begins to where it ends. Raises `NotOfSchema`, or IndexError where the bytes end before it."""

_ABOVE_INT = 2**31
_SMALLEST = -(2**63)


class NotOfSchema(ValueError):
    """A value that polars would refuse."""


def is_record(skip: Skip, data: bytes) -> bool:
    """Returns whether the bytes are one record, to their end."""
    try:
        return skip(data, 0) == len(data)
    except (NotOfSchema, IndexError):
        return False


def skip_of(schema: Any) -> Skip:
    """Returns what skips a value of the schema, which is inlined and of a type that polars decodes."""
    if isinstance(schema, list):
        return _nullable(skip_of(schema[1]))
    kind, more = (schema, {}) if isinstance(schema, str) else (schema["type"], schema)
    if kind == "record":
        return _one_after_the_other([skip_of(field["type"]) for field in more["fields"]])
    if kind == "array":
        return _array(skip_of(more["items"]))
    if kind == "enum":
        return _enum(len(more["symbols"]))
    if kind == "int":
        return _skip_int
    if kind == "long":
        return _skip_long
    if kind in ("bytes", "string"):
        return _sized(DECIMAL_BYTES if more.get("logicalType") == "decimal" else None, is_text=kind == "string")
    return _fixed(more["size"] if kind == "fixed" else SIZES[kind])


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Returns an Avro int or long, and where it ends."""
    bits = shift = 0
    while True:
        byte = data[at]
        at += 1
        bits |= (byte & 127) << shift
        if byte < 128:
            bits &= 0xFFFF_FFFF_FFFF_FFFF
            return bits >> 1 ^ -(bits & 1), at
        shift += 7
        if shift > 63:
            raise NotOfSchema("a number of more than ten bytes")


def _skip_long(data: bytes, at: int) -> int:
    return _number(data, at)[1]


def _skip_int(data: bytes, at: int) -> int:
    number, at = _number(data, at)
    if not -_ABOVE_INT <= number < _ABOVE_INT:
        raise NotOfSchema(f"{number} is not an int")
    return at


def _fixed(size: int) -> Skip:
    def skip(data: bytes, at: int) -> int:
        if at + size > len(data):
            raise NotOfSchema("cut short")
        return at + size

    return skip


def _sized(longest: int | None, *, is_text: bool) -> Skip:
    def skip(data: bytes, at: int) -> int:
        size, at = _number(data, at)
        end = at + size
        if size < 0 or end > len(data) or (longest is not None and size > longest):
            raise NotOfSchema(f"a length of {size}")
        if is_text:
            try:
                data[at:end].decode()
            except UnicodeDecodeError as error:
                raise NotOfSchema(str(error)) from error
        return end

    return skip


def _enum(symbols: int) -> Skip:
    def skip(data: bytes, at: int) -> int:
        number, at = _number(data, at)
        if number & 0xFFFF_FFFF >= symbols:
            raise NotOfSchema(f"symbol {number}")
        return at

    return skip


def _nullable(inner: Skip) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = _number(data, at)
        return inner(data, at) if branch else at

    return skip


def _array(item: Skip) -> Skip:
    def skip(data: bytes, at: int) -> int:
        while True:
            count, at = _number(data, at)
            if count == 0:
                return at
            if count < 0:
                at = _skip_long(data, at)
                count = 0 if count == _SMALLEST else -count  # polars reads that block as empty
            for _ in range(count):
                at = item(data, at)

    return skip


def _one_after_the_other(skips: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for skip_field in skips:
            at = skip_field(data, at)
        return at

    return skip
