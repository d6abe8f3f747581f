"""A dataclass or a `msgspec.Struct` as plain values, such as JSON has, and back. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def plain(value: object) -> Any:
    """Returns it as dicts, lists, texts and numbers; equal values in equal order."""
    return msgspec.to_builtins(value, str_keys=True, order="deterministic")


def of_plain(kind: type[T], value: Any) -> T:
    """Returns what `plain` was given. Raises `ValueError`, with the path, if it is not of this kind."""
    return msgspec.convert(value, kind, str_keys=True)
