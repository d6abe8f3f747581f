"""Bytes as text, where they are UTF-8. Pure."""

from __future__ import annotations


def decoded(value: bytes | None) -> str | None:
    """Returns the value as text; None if it is not UTF-8, or null."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
