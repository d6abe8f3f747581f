"""Durations that a program may write as a job file does: `before="10m"` for `before_ms=600_000`. Pure.

A spec holds numbers, with the unit in the name of the field. Right below each one stands the text for it, which is an
argument only:

    before_ms: Millis = REQUIRED
    before: InitVar[str | None] = None
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self

from joins.errors import SpecError
from teacup.base.fields import declared, takes

REQUIRED: Any = ...
"""Stands where a duration has no default: the number or the text must be given."""

_MS, _S = "_ms", "_s"


class DurationArgs:
    """A spec whose durations may be given as texts. Its `__post_init__` first hands the texts on to `take_texts`."""

    def __new__(cls, *_: object, **given: object) -> Self:
        """Raises `SpecError` if a duration is given twice. Later a number could not be told from a default."""
        for text, number in _durations(cls):
            if given.get(text) is not None and number in given:
                raise SpecError(
                    f"{text}: {given[text]!r} is given beside {number}: {given[number]!r}; give one of them "
                    f"(`dataclasses.replace` takes {number})"
                )
        return super().__new__(cls)

    def take_texts(self, texts: Sequence[str | None], where: str = "{}") -> None:
        """Replaces each number by the text that is given for it. Raises `SpecError` if a text is not a duration.

        It raises the same for a duration that is required, if neither the number nor the text is given.

        texts   those of all durations, in the order of the fields, as `__post_init__` gets them
        where   what a message calls an argument: `{}` is its name
        """
        for (text, number), given in zip(_durations(type(self)), texts, strict=True):
            if given is not None:
                try:
                    object.__setattr__(self, number, _parsed(type(self), number, given))
                except ValueError as refused:
                    raise SpecError(f"{where.format(text)}: {given!r} is not allowed; {refused}") from None
            elif getattr(self, number) is REQUIRED:
                raise SpecError(f'{where.format(text)} is missing; give {text}="10m", or {number}=600_000')


def _durations(spec: type[Any]) -> list[tuple[str, str]]:
    """Returns the names of each duration: as a text, and as a number."""
    return [
        (field.name.removesuffix(unit), field.name)
        for field in fields(spec)
        for unit in (_MS, _S)
        if field.name.endswith(unit)
    ]


def _parsed(spec: type[Any], name: str, given: str) -> float:
    """Returns the number that a text means for a field. Raises `ValueError` with what to give."""
    from teacup.base.times import duration_ms  # on first use: pydantic is slow to import, and workers need no texts

    duration = duration_ms(given)
    number = duration if name.endswith(_MS) else duration / 1_000
    if not takes(declared(spec, name), number):
        raise ValueError("give more than 0")  # the other bounds are those of every duration
    return number
