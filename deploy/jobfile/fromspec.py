"""Keys that become fields of a spec: their defaults, bounds and units are declared there, and only there. Pure.

    producer_delay_ms: Duration = from_spec(JoinSpec, "producer_delay_ms", description="...")

is the key `producer_delay`, with `10s` as its default, because `JoinSpec` says `producer_delay_ms: Millis = 10_000`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from pydantic import Field

from configfile.durations import written
from joins.durationargs import REQUIRED
from kafkaio.fieldtypes import INT64_MAX, Between, Rule, Spelling, declared, rule_of

_UNITS_MS = {"_ms": 1, "_s": 1_000}


def from_spec(spec: type[Any], name: str, **more: Any) -> Any:
    """Returns `pydantic.Field` with the default and the bounds of a field of `spec`, and its name as the key.

    more   other arguments of `pydantic.Field`; they override what the spec says

    A key that may be null has its bounds in its own type instead, with `like`: pydantic would hold null to them, too.
    """
    (field,) = (field for field in fields(spec) if field.name == name)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    unit = next((unit for unit in _UNITS_MS if name.endswith(unit)), None)
    found = _limits(rule_of(declared(spec, name)))
    if unit is not None:
        found["alias"] = name.removesuffix(unit)
    if default is not MISSING and default is not REQUIRED:
        found["default"] = default if unit is None or default is None else _duration(default * _UNITS_MS[unit])
    return Field(**(found | more))


def like(kind: Any) -> Any:
    """Returns `pydantic.Field` with the bounds of a declared type: `Annotated[str, like(TopicName)]`."""
    return Field(**_limits(rule_of(kind)))


def _duration(milliseconds: float) -> str:
    """The duration as a file has it, with a unit also if it is 0."""
    return written(round(milliseconds)) if milliseconds else "0s"


def _limits(rule: Rule | None) -> dict[str, Any]:
    """The bounds in pydantic's words; that a number has 64 bits is none of them."""
    if isinstance(rule, Spelling):
        return {"min_length": 1, "max_length": rule.longest, "pattern": rule.pattern}
    if not isinstance(rule, Between):
        return {}
    limits = {"gt": rule.above, "ge": rule.least, "le": rule.most}
    return {name: limit for name, limit in limits.items() if abs(limit) < INT64_MAX}
