"""Values of a job file: times, keys and properties as people write them -> what a job holds. Pure.

Functions such as `start_at` are pydantic validators: each returns the value, or raises with what is allowed.

Where a key becomes a field of a spec, default, bounds and unit are declared there, and only there (`of`):

    producer_delay_ms: Duration = of(JoinSpec).producer_delay_ms("what it means")

is the key `producer_delay`, with `10s` as its default, because `JoinSpec` has it, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from joins.spec import JobName, TopicName
from joins.spec_base import REQUIRED
from teacup.base.config.keys import Properties, at_keys
from teacup.base.fields import INT64_MAX, Between, Rule, Spelling, declared, rule_of
from teacup.base.times import millis_of, written
from teacup.kafka.errors import ConfigError
from teacup.kafka.records.record import KeyOf, Projection
from teacup.kafka.records.where import RecordFilter
from teacup.kafka.records.written_times import is_zone
from teacup.spark import conf

_KEY_PART = r"^(kafka|\$.+|header:.+)$"
_UNITS_MS = {"_ms": 1, "_s": 1_000}


class KeysOf:
    """Has a method for each field of a spec, which makes a key of it."""

    def __init__(self, spec: type[Any]) -> None:
        self._spec = spec

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(_key, self._spec, name)


of = KeysOf


def _key(spec: type[Any], name: str, meaning: str, **more: Any) -> Any:
    """Returns `pydantic.Field` with the default and the bounds of a field of `spec`, and its name as the key.

    more   other arguments of `pydantic.Field`; they override what the spec says

    A key that may be null has its bounds in its own type instead, with `like`: pydantic would hold null to them, too.
    """
    (field,) = (field for field in fields(spec) if field.name == name)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    unit = next((unit for unit in _UNITS_MS if name.endswith(unit)), None)
    limits = _limits(rule_of(declared(spec, name)))
    if unit is not None:
        limits["alias"] = name.removesuffix(unit)
    if default is not MISSING and default is not REQUIRED:
        limits["default"] = default if unit is None or default is None else _duration(default * _UNITS_MS[unit])
    return Field(**(limits | more), description=meaning)


def like(kind: Any) -> Any:
    """Returns `pydantic.Field` with the bounds of a declared type: `Annotated[str, like(TopicName)]`."""
    return Field(**_limits(rule_of(kind)))


def _duration(milliseconds: float) -> str:
    """Returns the duration as a file has it, with a unit also if it is 0."""
    return written(round(milliseconds)) if milliseconds else "0s"


def _limits(rule: Rule | None) -> dict[str, Any]:
    """Returns the bounds in pydantic's words; the bounds of 64 bits are left out."""
    if isinstance(rule, Spelling):
        return {"min_length": 1, "max_length": rule.longest, "pattern": rule.pattern}
    if not isinstance(rule, Between):
        return {}
    limits = {"gt": rule.above, "ge": rule.least, "le": rule.most}
    return {name: limit for name, limit in limits.items() if abs(limit) < INT64_MAX}


def start_at(value: object) -> str | int:
    """Returns `earliest`, `latest`, or the milliseconds of an ISO-8601 time with a zone."""
    how = "give earliest, latest, or an ISO-8601 time with a zone such as 2026-01-31T12:00:00Z"
    if value in ("earliest", "latest"):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(how)
    try:
        begin_ms = millis_of(value)
    except ValueError as error:
        raise ValueError(f"{how} ({error})") from error
    if begin_ms < 0:
        raise ValueError("give a time since 1970")
    return begin_ms


def time_zone(value: str) -> str:
    """Returns the name of a zone."""
    if not is_zone(value):
        raise ValueError("give UTC, or a name of the IANA database such as Europe/Berlin")
    return value


def time_path(value: str) -> str:
    """Returns where an event time is, as `TimeOf` has it."""
    if value != "kafka" and not value.startswith(("$", "header:")):
        raise ValueError("give kafka, a JSON path into the value such as $.event.time, or header:NAME")
    return value


def key_parts(value: object) -> tuple[str, ...]:
    """Returns where a join key is, as the parts of a `KeyOf`."""
    how = "give kafka, a JSON path such as $.user.id or kafka:$.id, header:NAME, or a list of these"
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError(how)
    try:
        return KeyOf.of(parts).parts
    except ConfigError as error:
        raise ValueError(how) from error


def kept_parts(value: object) -> tuple[str, ...]:
    """Returns what of a record is kept, as the parts of a `Projection`."""
    how = "give a list of JSON paths outside arrays such as $.price, header:NAME, $ (the whole value) and kafka"
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise ValueError(how)
    try:
        return Projection(tuple(value)).parts
    except ConfigError as error:
        raise ValueError(how) from error


def selected(value: object) -> str | dict[str, str]:
    """Returns an expression of Spark SQL, or those of fields by name."""
    if isinstance(value, dict):
        if not value:
            raise ValueError("give at least one field")
        if wrong := [
            name for name, sql in value.items() if not (isinstance(name, str) and isinstance(sql, str) and sql)
        ]:
            raise at_keys(
                [((str(name),), "give Spark SQL as a text; quote what YAML takes for something else") for name in wrong]
            )
        return dict(value)
    if not isinstance(value, str) or not value:
        raise ValueError("give Spark SQL as a text, or a mapping of names to such texts")
    return value


def schema_text(value: object) -> object:
    """Returns a schema as it is, if it is a text; what Spark says of it comes later."""
    if not isinstance(value, str):
        raise ValueError('give all fields in one text: "order_id STRING, amount DOUBLE"')
    return value


def where_parts(value: object) -> RecordFilter:
    """Returns which records a side takes."""
    how = "give JSON paths or header:NAME, each with its texts, such as {$.type: [click, view]}"
    if not isinstance(value, dict):
        raise ValueError(how)
    try:
        return RecordFilter.of(value)
    except ConfigError as error:
        raise ValueError(f"{how} ({error})") from error


def with_brokers(given: dict[str, str]) -> dict[str, str]:
    """Returns the properties, with which a broker can be found."""
    if not given.get("bootstrap.servers"):
        raise at_keys([("bootstrap.servers", "is missing; give the brokers as host:port,host:port")])
    return given


def spark_properties(given: dict[str, str]) -> dict[str, str]:
    """Returns `master` and any Spark property that does not break a job."""
    if problems := list(conf.problems(given)):
        raise at_keys(problems)
    return given


_TEXT_OF_WHERE = {"type": ["string", "integer", "boolean"]}
Start = Annotated[
    str | int,
    BeforeValidator(start_at),
    WithJsonSchema({"type": "string", "examples": ["earliest", "latest", "2026-01-31T12:00:00Z"]}),
]
Topic = Annotated[str, like(TopicName)]
Name = Annotated[str, like(JobName)]
Namespace = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
KeyParts = Annotated[
    tuple[str, ...],
    PlainValidator(key_parts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": _KEY_PART},
                {"type": "array", "items": {"type": "string", "pattern": _KEY_PART}, "minItems": 1},
            ],
            "examples": ["kafka", "$.user.id", "header:tenant", ["header:tenant", "$.user.id"]],
        }
    ),
]
KeptParts = Annotated[
    tuple[str, ...],
    PlainValidator(kept_parts),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "string", "pattern": r"^(kafka|\$.*|header:.+)$"},
            "examples": [["$.campaign", "$.price.amount", "header:tenant"]],
        }
    ),
]
Selected = Annotated[
    str | dict[str, str],
    PlainValidator(selected),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}, "minProperties": 1},
            ]
        }
    ),
]
SchemaText = Annotated[str, BeforeValidator(schema_text), Field(min_length=1)]
WhereParts = Annotated[
    RecordFilter,
    PlainValidator(where_parts),
    PlainSerializer(RecordFilter.to_json),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": r"^(\$.+|header:.+)$"},
            "additionalProperties": {
                "anyOf": [_TEXT_OF_WHERE, {"type": "array", "items": _TEXT_OF_WHERE, "minItems": 1}]
            },
            "minProperties": 1,
            "examples": [{"$.type": "click"}, {"header:ce_type": ["click", "view"]}],
        }
    ),
]
TimePath = Annotated[str, AfterValidator(time_path)]
TimeZone = Annotated[str, AfterValidator(time_zone)]
KafkaProperties = Annotated[Properties, AfterValidator(with_brokers)]
SparkProperties = Annotated[Properties, AfterValidator(spark_properties)]
