"""What can be known of an Avro schema before a record is read. Pure.

Schemas are as `fastavro.parse_schema` returns them: each name is complete and stands for a type in `named`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
NAMED = {"record", "error", "enum", "fixed"}
LARGEST = 5_000
"""The most types in a schema, each counted wherever it is used; a short text can name more than memory holds."""
LONGEST_DECIMAL = 38
DECIMAL_BYTES = 16
"""The most bytes of a decimal that polars reads."""

INT32 = "teacup-int32"
"""The logical type of plain ints, so that fastavro can be told to check them, as it reads ints of any size."""

_AT_ONCE = (None, INT32, "timestamp-millis", "timestamp-micros", "date", "decimal")
_OF_TEXT = "uuid"


def with_checked_ints(schema: Any) -> Any:
    """Returns a schema, given as written, with the logical type `INT32` for its plain ints."""
    if schema == "int":
        return {"type": "int", "logicalType": INT32}
    if isinstance(schema, list):
        return [with_checked_ints(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "int":
        return schema if schema.get("logicalType") in ("date", "time-millis") else {**schema, "logicalType": INT32}
    if isinstance(fields := schema.get("fields"), list):
        return {**schema, "fields": [_with_checked_ints_of(member) for member in fields]}
    return _with_checked_ints_of(schema)


def _with_checked_ints_of(schema: Any) -> Any:
    """Returns a field, array, map, or type within a type, with checked ints in the types that it names."""
    if not isinstance(schema, dict):
        return schema
    return schema | {name: with_checked_ints(schema[name]) for name in ("type", "items", "values") if name in schema}


@dataclass(slots=True)
class _Inlining:
    """Replaces names by their types."""

    named: Mapping[str, Any]
    left: int = LARGEST
    recursive: bool = False

    def of(self, schema: Any, within: tuple[str, ...] = ()) -> Any:
        self.left -= 1
        if self.left < 0:
            return "null"
        if isinstance(schema, list):
            return [self.of(branch, within) for branch in schema]
        if isinstance(schema, str):
            return self._by_name(schema, within)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, within)
        shown = {name: schema[name] for name in ("type", "symbols", "size") if name in schema}
        if kind in NAMED:
            shown["name"] = f"type{self.left}"  # no name may occur twice
        if kind == "array":
            return {**shown, "items": self.of(schema["items"], within)}
        if kind == "map":
            return {**shown, "values": self.of(schema["values"], within)}
        if kind in ("record", "error"):
            inside = (*within, schema["name"])
            fields = [{"name": member["name"], "type": self.of(member["type"], inside)} for member in schema["fields"]]
            return {**shown, "type": "record", "fields": fields}
        logical = {name: schema[name] for name in ("logicalType", "precision", "scale") if name in schema}
        return shown if kind == "string" and logical.get("logicalType") == _OF_TEXT else {**shown, **logical}

    def _by_name(self, name: str, within: tuple[str, ...]) -> Any:
        if name in PRIMITIVES:
            return name
        if name in within:
            self.recursive = True
            return "null"
        return self.of(self.named[name], within)


def inlined(schema: Any, named: Mapping[str, Any]) -> Any | None:
    """Returns the schema with each name replaced by its type; a UUID in text is text.

    None for a schema that contains itself, or has more than `LARGEST` types.
    """
    inlining = _Inlining(named)
    whole = inlining.of(schema)
    return None if inlining.recursive or inlining.left < 0 else whole


def read_at_once(schema: Any, depth: int = 0) -> bool:
    """Returns whether polars reads it.

    It reads records of primitive types, of arrays, and of unions of null and one of these. It reads enums only as
    fields of the outermost record.
    """
    if isinstance(schema, str):
        return schema != "null"
    if isinstance(schema, list):
        nullable = len(schema) == 2 and schema[0] == "null" and not isinstance(schema[1], list)
        return nullable and read_at_once(schema[1], depth)
    kind, logical = schema["type"], schema.get("logicalType")
    if kind == "record":
        return bool(schema["fields"]) and all(read_at_once(member["type"], depth + 1) for member in schema["fields"])
    if kind == "array":
        return read_at_once(schema["items"], depth + 1)
    if logical not in _AT_ONCE or (logical == "decimal" and schema.get("precision", 0) > LONGEST_DECIMAL):
        return False
    if kind == "fixed" and logical == "decimal" and schema["size"] > DECIMAL_BYTES:
        return False
    if kind == "enum":
        return depth == 1
    return kind == "fixed" or kind in PRIMITIVES - {"null"}


def with_longs(schema: Any) -> Any:
    """Returns an inlined schema that is read at once, with longs instead of ints and dates.

    They have the same bytes, and polars would read ints of more than 32 bits as other numbers.
    """
    if isinstance(schema, list):
        return [schema[0], with_longs(schema[1])]
    if isinstance(schema, str):
        return "long" if schema == "int" else schema
    if schema["type"] == "record":
        return {**schema, "fields": [{**member, "type": with_longs(member["type"])} for member in schema["fields"]]}
    if schema["type"] == "array":
        return {**schema, "items": with_longs(schema["items"])}
    return "long" if schema["type"] == "int" else schema


def has_endless_arrays(schema: Any, named: Mapping[str, Any]) -> bool:
    """Returns whether some array has items without bytes, such as nulls, as a few bytes could be any number of them."""
    search = _Search(named)
    search.needs_bytes(schema)
    return search.endless


@dataclass(slots=True)
class _Search:
    """Looks at each type once."""

    named: Mapping[str, Any]
    known: dict[str, bool] = field(default_factory=dict)
    endless: bool = False

    def needs_bytes(self, schema: Any) -> bool:
        """Returns whether a value has at least one byte."""
        if isinstance(schema, list):
            for branch in schema:
                self.needs_bytes(branch)
            return True  # the number of the branch
        if isinstance(schema, str):
            return schema != "null" if schema in PRIMITIVES else self._record(self.named[schema])
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.needs_bytes(kind)
        if kind in ("array", "map"):
            items = self.needs_bytes(schema["items" if kind == "array" else "values"])
            self.endless |= kind == "array" and not items
            return True  # the number of items
        return self._record(schema) if kind in NAMED else bool(kind != "null")

    def _record(self, schema: Any) -> bool:
        if "fields" not in schema:
            return bool(schema.get("size") != 0)
        if schema["name"] not in self.known:
            types = [member["type"] for member in schema["fields"]]
            self.known[schema["name"]] = True  # where it contains itself
            self.known[schema["name"]] = max(list(map(self.needs_bytes, types)), default=False)
        return self.known[schema["name"]]
