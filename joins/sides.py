"""What exists for both sides of a join, asked for by name. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)

OTHER = {"left": "right", "right": "left"}
"""The other side."""


class BothSides(Generic[T_co]):
    """Has an attribute for each side, `left` and `right`, of one type."""

    __slots__ = ()

    def side(self, name: str) -> T_co:
        """Returns the attribute of the side called "left" or "right"."""
        found: T_co = getattr(self, name)
        return found
