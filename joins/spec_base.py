"""What the specs of all jobs have in common: durations that may be texts, and what a checkpoint is bound to. Pure.

A spec holds its durations as numbers, with the unit in the name of the field. Right below each one stands the text for
it, as a job file has it (`before="10m"` for `before_ms=600_000`), which is an argument only:

    before_ms: Millis = REQUIRED
    before: InitVar[str | None] = None

A checkpoint is bound to those values of its job's spec that decide what is in it: they are written to it by name, and
compared at each start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Self

from joins.errors import SpecChanged, SpecError
from teacup.base.fields import declared, takes
from teacup.base.times import duration_ms

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
    duration = duration_ms(given)
    number = duration if name.endswith(_MS) else duration / 1_000
    if not takes(declared(spec, name), number):
        raise ValueError("give more than 0")  # the other bounds are those of every duration
    return number


@dataclass(frozen=True, slots=True)
class Wording:
    """Words a message about what differs as whoever described the job knows it: in Python, or in a file.

    named    the name of a value, and the value as it is written there
    remedy   what to do, unless the old values are put back
    """

    named: Callable[[str, object], tuple[str, str]]
    remedy: str


def in_python(remedy: str) -> Wording:
    """Returns the words for a job that is described in Python."""
    return Wording(lambda name, value: (name, repr(value)), remedy)


def identity_of(spec: object, names: Iterable[str], if_set: Iterable[str] = ()) -> dict[str, object]:
    """Returns values of a description by name, as checkpoints hold them in JSON; `right.topic` is one of its side.

    if_set   names of those that are left out if they are None
    """
    found = {name: _as_json(name, attrgetter(name)(spec)) for name in (*names, *if_set)}
    return {name: value for name, value in found.items() if value is not None or name not in if_set}


def _as_json(name: str, value: object) -> object:
    if isinstance(value, str):  # also a choice of several; a key of one part is a list, as one of several is
        return [str(value)] if name.endswith(".key") else str(value)
    return list(value) if isinstance(value, tuple) else value


def check_identity(
    what: str,
    name: str,
    was: Mapping[str, object],
    now: Mapping[str, object],
    wording: Wording,
    if_set: Iterable[str] = (),
) -> None:
    """Raises `SpecChanged`, naming every value that differs.

    what, name   the kind of the job ("join"), and the name of this one
    was, now     of the job that wrote the checkpoint, and of this one
    if_set       as of `identity_of`
    """
    changed = []
    for key, value in {**dict.fromkeys(key for key in if_set if key in was), **now}.items():
        if was.get(key) != value:
            (shown, before), (_, after) = wording.named(key, was.get(key)), wording.named(key, value)
            changed.append(f"{shown}: {before} -> {after}")
    if changed:
        raise SpecChanged(
            f"the checkpoint belongs to another {what} than {name!r} ({'; '.join(changed)}): put the old values back, "
            f"or {wording.remedy}"
        )
