"""What the header `teacup` of a row or copy says, in tests that have its headers as a dictionary of texts."""

from __future__ import annotations

from collections.abc import Mapping


def header(left: str = "-", right: str = "-", batch: object = "-") -> tuple[str, bytes]:
    """The header of a row as a test writes it."""
    return "teacup", f"1 {left} {right} {batch}".encode()


def left_of(headers: Mapping[str, str]) -> str | None:
    """The position of the left record."""
    return _part(headers, 1)


def right_of(headers: Mapping[str, str]) -> str | None:
    """The position of the right record."""
    return _part(headers, 2)


def batch_of(headers: Mapping[str, str]) -> str | None:
    """The batch that wrote it."""
    return _part(headers, 3)


def _part(headers: Mapping[str, str], at: int) -> str | None:
    text = headers["teacup"].split(" ")[at]
    return None if text == "-" else text
