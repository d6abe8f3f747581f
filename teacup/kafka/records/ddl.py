"""Schemas of Avro and Protobuf as Spark's DDL: the types of the JSON that their records become. Pure.

    as in `teacup.kafka.records.avro`, `teacup.kafka.records.protobuf`: bytes, enums, UUIDs and times of day are text,
    a decimal is a text of digits, a union of more than null and one type is whatever its branch is: STRING takes each

Both raise `ValueError` for a schema that contains itself, which no type of Spark does.
"""

from __future__ import annotations

from typing import Any

_PLAIN = {"boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "DOUBLE", "double": "DOUBLE"}
_PROTO = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "INT"),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), "BIGINT"),
    **dict.fromkeys(("uint64", "fixed64"), "DECIMAL(20,0)"),
    **dict.fromkeys(("float", "double"), "DOUBLE"),
    "bool": "BOOLEAN",
}
_LOGICAL = {
    "date": "DATE",
    **{f"timestamp-{unit}": "TIMESTAMP" for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": "TIMESTAMP_NTZ" for unit in ("millis", "micros", "nanos")},
    **dict.fromkeys(("time-millis", "time-micros", "uuid"), "STRING"),
}
MOST_DIGITS = 38
_TIMESTAMP = "google.protobuf.Timestamp"


def fields_of_avro(record: Any) -> str:
    """Returns the fields of a record (`teacup.kafka.records.avro_schemas.inlined`; None if it contains itself)."""
    if record is None:
        raise ValueError("it contains itself")
    if not isinstance(record, dict) or record["type"] != "record":
        raise ValueError("it is not a record")
    return ", ".join(f"{_quoted(field['name'])} {_of_avro(field['type'])}" for field in record["fields"])


def _of_avro(kind: Any) -> str:
    match kind:
        case list():
            branches = [branch for branch in kind if branch != "null"]
            return _of_avro(branches[0]) if len(branches) == 1 else "STRING"
        case {"logicalType": "decimal", "precision": digits} if digits <= MOST_DIGITS:
            return f"DECIMAL({digits},{kind.get('scale', 0)})"
        case {"logicalType": logical} if logical in _LOGICAL:
            return _LOGICAL[logical]
        case {"type": "record", "fields": fields}:
            inside = ", ".join(f"{_quoted(field['name'])}: {_of_avro(field['type'])}" for field in fields)
            return f"STRUCT<{inside}>"
        case {"type": "array", "items": items}:
            return f"ARRAY<{_of_avro(items)}>"
        case {"type": "map", "values": values}:
            return f"MAP<STRING, {_of_avro(values)}>"
        case {"type": inner}:
            return _of_avro(inner)
    return _PLAIN.get(kind, "STRING")


def fields_of_message(descriptor: Any) -> str:
    """Returns the fields of a message (`google.protobuf.descriptor.Descriptor`)."""
    return ", ".join(f"{_quoted(field.name)} {_of_proto(field, ())}" for field in descriptor.fields)


def _of_proto(field: Any, around: tuple[str, ...]) -> str:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return f"MAP<STRING, {_of_proto(message.fields_by_name['value'], around)}>"
    one = _of_message(message, around) if message is not None else _PROTO.get(_name_of(field), "STRING")
    return f"ARRAY<{one}>" if field.is_repeated else one


def _of_message(message: Any, around: tuple[str, ...]) -> str:
    if message.full_name == _TIMESTAMP:
        return "TIMESTAMP"
    if message.full_name in around:
        raise ValueError("it contains itself")
    inside = (*around, message.full_name)
    fields = ", ".join(f"{_quoted(field.name)}: {_of_proto(field, inside)}" for field in message.fields)
    return f"STRUCT<{fields}>"


_NAMES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 13: "uint32",
    15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
"""The numbers of `FieldDescriptor.type`, which Protobuf's wire format fixes."""


def _name_of(field: Any) -> str:
    return _NAMES.get(field.type, "")


def _quoted(name: str) -> str:
    return f"`{name}`"
