"""The fields of a description, coerced or refused by their declared types, and shown without secrets. Pure.

A frozen dataclass that users construct calls `coerce_fields` first in its `__post_init__`, and declares

    str, bool, int        that type, or a text or number of numpy's; a bool is not a number, and a text is not an int
    float                 a finite number
    an enum of texts      a member, or its text
    Literal["a", "b"]     one of these texts
    Mapping[str, str]     librdkafka's properties: numbers and bools become their text, as in a file
    Mapping[int, int]     numbers by number
    tuple[X, ...]         a list or tuple of X
    Path                  a path, or its text
    any other class       an instance of it
    X | Y                 the first that takes the value
    Annotated[X, rule]    an X that passes the rule's test: `Between` for numbers, `Spelling` for texts, else `Allowed`

So the result has exactly the declared types, and is a value that compares, hashes and pickles as declared.

Some values are never shown: those with secret names (`is_secret`), in files as in properties of Kafka and Spark, and
passwords in URLs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

LONGEST_SHOWN = 80
INT64_MAX = 2**63 - 1
_REFUSED = object()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which values of its type a field takes. what: "a number from 1 to 9", after "give"."""

    what: str
    test: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Between:
    """Which numbers a field takes: from `least`, or from anything above `above`, to `most`. what: as in `Allowed`."""

    what: str
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf

    def test(self, number: float) -> bool:
        """Returns whether the field takes the number."""
        return self.above < number and self.least <= number <= self.most


@dataclass(frozen=True, slots=True)
class Spelling:
    """Which texts a field takes: those of the pattern, with at most `longest` characters. what: as in `Allowed`."""

    what: str
    pattern: str
    longest: int

    def test(self, text: str) -> bool:
        """Returns whether the field takes the text."""
        return len(text) <= self.longest and re.fullmatch(self.pattern, text) is not None


Rule = Allowed | Between | Spelling
Text = Annotated[str, Allowed("a text that is not empty", bool)]
Count = Annotated[int, Between("a whole number, 1 or more", least=1, most=INT64_MAX)]


def coerce_fields(description: Any, error: type[Exception], where: str = "{}") -> None:
    """Replaces each field of a frozen dataclass by its value in the declared type.

    where   what a message calls a field: `{}` is its name

    Raises `error`, which names the first field with a refused value, the value, and what to give.
    """
    types = _types(description.__class__)
    for field in fields(description):
        value = getattr(description, field.name)
        try:
            coerced = _coerced(types[field.name], value)
        except ValueError as refused:
            shown = _shown(value) if field.repr and not is_secret(field.name) else MASK
            raise error(f"{where.format(field.name)}: {shown} is not allowed; give {refused}") from None
        object.__setattr__(description, field.name, coerced)


def property_text(value: str | float) -> str:
    """Returns the value of a property as Kafka and Spark take it: `true`, `5`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def declared(description: Any, name: str) -> Any:
    """Returns the type that a description (the class) declares for a field."""
    return _types(description)[name]


def rule_of(kind: Any) -> Rule | None:
    """Returns the rule of a declared type; None if the type has none, or has alternatives (`Count | None`)."""
    return next((part for part in get_args(kind)[1:] if isinstance(part, Rule)), None)


def takes(kind: Any, value: Any) -> bool:
    """Returns whether a field of this type takes the value."""
    try:
        _coerced(kind, value)
    except ValueError:
        return False
    return True


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _coerced(kind: Any, value: Any) -> Any:
    """Returns the value in the declared type. Raises `ValueError` with what to give."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _allowed(parts[0], parts[1], value)
    if origin in (Union, UnionType):
        return _first_of(parts, value)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_coerced(parts[0], item) for item in value)
    if origin is Mapping or origin is dict:
        return _properties(value) if parts[0] is str else _numbers(value)
    coerced = _plain(kind, origin, parts, value)
    if coerced is _REFUSED:
        raise ValueError(_meant(kind))
    return coerced


def _plain(kind: Any, origin: Any, parts: tuple[Any, ...], value: Any) -> Any:
    """Returns the value in a type without parts; `_REFUSED` if it is not of that type."""
    coerced = _REFUSED
    if origin is Literal:
        coerced = str(value) if isinstance(value, str) and value in parts else _REFUSED
    elif not isinstance(kind, type):
        pass
    elif issubclass(kind, StrEnum):
        coerced = kind(value) if isinstance(value, str) and value in list(kind) else _REFUSED
    elif kind is str:
        coerced = str(value) if isinstance(value, str) else _REFUSED
    elif kind is Path:
        coerced = Path(value) if isinstance(value, str | Path) else _REFUSED
    elif kind is int:
        coerced = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else _REFUSED
    elif kind is float:
        coerced = _finite(value)
    elif isinstance(value, kind):
        coerced = value
    return coerced


def _finite(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Real):
        return _REFUSED
    try:
        number = float(value)
    except OverflowError:
        return _REFUSED
    return number if math.isfinite(number) else _REFUSED


def _allowed(kind: Any, rule: Rule, value: Any) -> Any:
    try:
        coerced = _coerced(kind, value)
    except ValueError:
        raise ValueError(rule.what) from None
    if not rule.test(coerced):
        raise ValueError(rule.what)
    return coerced


def _first_of(kinds: tuple[Any, ...], value: Any) -> Any:
    refused = []
    for kind in kinds:
        try:
            return _coerced(kind, value)
        except ValueError as error:
            refused.append(str(error))
    raise ValueError(" or ".join(refused))


def _properties(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("a mapping of property names to values")
    for name, setting in value.items():
        if not isinstance(name, str) or not isinstance(setting, str | int | float):
            raise ValueError(f"a text or a number for the property {_shown(name)}")
    return {str(name): property_text(setting) for name, setting in value.items()}


def _numbers(value: Any) -> dict[int, int]:
    if not isinstance(value, Mapping):
        raise ValueError("a mapping of whole numbers")
    return {_coerced(int, key): _coerced(int, number) for key, number in value.items()}


def _meant(kind: Any) -> str:
    """Returns what a message calls a value of the type."""
    options = get_args(kind) if get_origin(kind) is Literal else None
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        options = tuple(str(member) for member in kind)
    if options:
        *others, last = [repr(option) for option in options]
        return f"{', '.join(others)} or {last}" if others else last
    if get_origin(kind) is tuple:
        return f"a list, each of it {_meant(get_args(kind)[0])}"
    if get_origin(kind) is Annotated:
        return str(get_args(kind)[1].what)
    names = {str: "a text", int: "a whole number", float: "a number", bool: "True or False", NoneType: "None"}
    return names.get(kind) or f"a {kind.__name__}"


def _shown(value: Any) -> str:
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Returns a value's text as it appears in a message, cut if it is too long."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


MASK = "***"
_SECRET = re.compile(
    r"password|secret|token|credential|sasl\.oauthbearer|key\.pem|access.?key|private|user\.info", re.IGNORECASE
)


_BEFORE_HOST = re.compile(r"(://[^/@:]*):.*@", re.DOTALL)
_IN_QUERY = re.compile(r"([?&][^=&]*password=)[^&]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """Returns a URL as it may appear in a message, even a wrong one whose password is not percent-encoded."""
    return _IN_QUERY.sub(rf"\1{MASK}", _BEFORE_HOST.sub(rf"\1:{MASK}@", url))


def is_secret(name: str) -> bool:
    """Returns whether the value of a key or property of this name must not appear in a message."""
    return _SECRET.search(name) is not None


_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(?://)?")


def local_folder(checkpoint: str) -> Path | None:
    """Returns the folder of a checkpoint given as a path or a `file:` URL; None for every other URL."""
    scheme = _SCHEME.match(checkpoint)
    if scheme is None:
        return Path(checkpoint)
    return Path(checkpoint[scheme.end() :]) if scheme[1].lower() == "file" else None


def plain(value: object) -> Any:
    """Returns a dataclass or a `msgspec.Struct` as dicts, lists, texts and numbers; equal values in equal order."""
    return msgspec.to_builtins(value, str_keys=True, order="deterministic")


def of_plain(kind: type[T], value: Any) -> T:
    """Returns what `plain` was given. Raises `ValueError`, with the path, if it is not of this kind."""
    return msgspec.convert(value, kind, str_keys=True)
