"""Values of a job file: durations, times and properties as people write them -> what a job holds. Pure.

Each function is a pydantic validator: it returns the value, or raises with what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from dedup.spark import location_problem
from deploy import sparkconf
from deploy.jobfile.librdkafka import unknown_or_invalid
from joins.spec import LONGEST_MS
from kafkaio import client
from kafkaio.errors import ConfigError
from settings.keys import at_keys

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = r"\d+(?:\.\d+)?\s*(?:ms|s|m|h|d)"
_DURATION = rf"^\s*{_PART}(?:\s+{_PART})*\s*$|^0$"
_HOW_LONG = "give a duration with its unit: 250ms, 10s, 1m 30s, 2h, 7d"


def duration_ms(value: object) -> int:
    """`1m 30s` -> 90000; ValueError if it is not a duration or has no unit."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not re.match(_DURATION, text):
        raise ValueError(_HOW_LONG)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text)
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in parts)
    if total > LONGEST_MS:
        raise ValueError("give at most 3650d")
    if total != round(total):
        raise ValueError("give whole milliseconds")
    return round(total)


def start_at(value: object) -> str | int:
    """`earliest`, `latest`, or the milliseconds of an ISO-8601 time with a zone."""
    how = "give earliest, latest, or an ISO-8601 time with a zone such as 2026-01-31T12:00:00Z"
    if value in ("earliest", "latest"):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(how)
    try:
        time = datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(how) from error
    if time.tzinfo is None:
        raise ValueError(f"the time has no zone; {how}")
    if time < datetime.fromtimestamp(0, UTC):
        raise ValueError("give a time since 1970")
    return round(time.timestamp() * 1000)


def time_path(value: str) -> str:
    """`kafka`, or a JSON path."""
    if value != "kafka" and not value.startswith("$"):
        raise ValueError("give kafka, or a JSON path into the value such as $.event.time")
    return value


def api_url(value: str) -> str:
    """The address of an API; a path is allowed, because a proxy may put it anywhere."""
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
    except ValueError:
        good = False
    if not good:
        raise ValueError("give http(s)://host:port")
    return value


def looked_into(value: str) -> str:
    """A checkpoint that is read from Python, to detect a restart."""
    if problem := location_problem(value):
        raise ValueError(problem)
    return value


def kafka_properties(given: object) -> object:
    """Properties for both topics; every refused one is named."""
    return _properties(given, _kafka_problems, needed={"bootstrap.servers": "give the brokers as host:port,host:port"})


def producer_properties(given: object) -> object:
    """Properties that override those for both topics."""
    return _properties(given, _kafka_problems)


def spark_properties(given: object) -> object:
    """`master` and any Spark property."""
    return _properties(given, sparkconf.problems)


def spark_without_speculation(given: dict[str, str]) -> dict[str, str]:
    """Spark properties of jobs whose output does not go out in transactions."""
    if problems := list(sparkconf.speculation_problems(given)):
        raise at_keys(problems)
    return given


def _kafka_problems(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in given.items():
        if key == "bootstrap.servers":
            continue
        try:
            client.validate({"bootstrap.servers": "one:9092", key: value})
        except ConfigError as error:
            yield key, str(error).removeprefix(f"{key}: {value!r} is refused: ")
            continue
        if problem := unknown_or_invalid(key, value):
            yield key, problem


def _properties(
    given: object,
    problems_of: Callable[[Mapping[str, str]], Iterable[tuple[str, str]]],
    needed: Mapping[str, str] = MappingProxyType({}),
) -> object:
    """Values as the text that Kafka and Spark take (also YAML's `true` and numbers), or every problem at its key."""
    if not isinstance(given, dict):
        return given  # the field itself reports the wrong type
    texts = {str(key): _scalar(value) for key, value in given.items()}
    good = {key: text for key, text in texts.items() if text is not None}
    problems = [
        *((key, f"is missing; {how}") for key, how in needed.items() if not texts.get(key)),
        *((key, "give one value") for key, text in texts.items() if text is None),
        *problems_of(good),
    ]
    if problems:
        raise at_keys(problems)
    return good


def _scalar(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


Duration = Annotated[
    int,
    BeforeValidator(duration_ms),
    WithJsonSchema({"type": "string", "pattern": _DURATION, "examples": ["250ms", "10s", "1m 30s", "2h"]}),
]
Start = Annotated[
    str | int,
    BeforeValidator(start_at),
    WithJsonSchema({"type": "string", "examples": ["earliest", "latest", "2026-01-31T12:00:00Z"]}),
]
Text = Annotated[str, Field(min_length=1)]
Topic = Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._-]+$")]
Namespace = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
ApiUrl = Annotated[Text, AfterValidator(api_url)]
TimePath = Annotated[str, AfterValidator(time_path)]
KafkaProperties = Annotated[dict[str, str], BeforeValidator(kafka_properties)]
ProducerProperties = Annotated[dict[str, str], BeforeValidator(producer_properties)]
SparkProperties = Annotated[dict[str, str], BeforeValidator(spark_properties)]
SparkWithoutSpeculation = Annotated[SparkProperties, AfterValidator(spark_without_speculation)]
