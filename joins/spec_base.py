"""What the specs of all jobs have in common: durations that may be texts, and what a checkpoint is bound to. Pure.

A spec holds its durations as numbers, with the unit in the field's name. Below each stands an init-only argument for
its text, as in a job file (`before="10m"` for `before_ms=600_000`):

    before_ms: Millis = REQUIRED
    before: InitVar[str | None] = None

A checkpoint is bound to the values of its job's spec that decide its contents: they are written to it by name, and
compared at each start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Self, TypeVar

from joins.errors import SpecChanged, SpecError
from teacup.base.fields import declared, of_plain, takes
from teacup.base.times import UNLIMITED, UNLIMITED_MS, duration_ms
from teacup.kafka.records.where import RecordFilter

T = TypeVar("T")

REQUIRED: Any = ...
"""The default of a duration that must be given, as a number or a text."""

_MS, _S = "_ms", "_s"
_NONE: Mapping[str, Any] = MappingProxyType({})


class DurationArgs:
    """A spec whose durations may be given as texts. Its `__post_init__` first calls `take_texts`."""

    def __new__(cls, *_: object, **given: object) -> Self:
        """Raises `SpecError` if a duration is given twice. Later, a given number looks like a default."""
        for text, number in _durations(cls):
            if given.get(text) is not None and number in given:
                raise SpecError(
                    f"{text}: {given[text]!r} is given beside {number}: {given[number]!r}; give one of them "
                    f"(`dataclasses.replace` takes {number})"
                )
        return super().__new__(cls)

    def take_texts(self, texts: Sequence[str | None], where: str = "{}") -> None:
        """Replaces each number whose text is given. Raises `SpecError` for a bad text, or a required duration not
        given.


        texts   of all durations, in the order of the fields, as `__post_init__` gets them
        where   how a message names an argument: `{}` is its name
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
    """Returns a field's number from its text. Raises `ValueError` with what to give."""
    if given == UNLIMITED and takes(declared(spec, name), UNLIMITED_MS):
        return UNLIMITED_MS
    duration = duration_ms(given)
    number = duration if name.endswith(_MS) else duration / 1_000
    if not takes(declared(spec, name), number):
        raise ValueError("give more than 0")  # the other bounds are those of every duration
    return number


def read_back(kind: type[T], data: Mapping[str, Any], form: int, what: str, remedy: str) -> T:
    """Returns a value of a checkpoint, written as `{"format": form, **plain(value)}`. Raises `SpecChanged` for another.

    what     "the handover has", for messages
    remedy   a clause: what can be done without the version that wrote it
    """
    if data.get("format") != form:
        raise SpecChanged(
            f"{what} format {data.get('format')!r}, this version reads {form}: continue with the version that wrote "
            f"it, or {remedy}"
        )
    return of_plain(kind, data)


@dataclass(frozen=True, slots=True)
class Wording:
    """How a message about changed values is worded, for a job described in Python or in a file.

    named    maps a value's name and the value to how they are written there
    remedy   what to do if the old values are not put back
    """

    named: Callable[[str, object], tuple[str, str]]
    remedy: str


def in_python(remedy: str) -> Wording:
    """Returns the wording for a job described in Python."""
    return Wording(lambda name, value: (name, repr(value)), remedy)


def identity_of(
    spec: object, names: Iterable[str], if_set: Mapping[str, object] = _NONE, places: Mapping[str, str] = _NONE
) -> dict[str, object]:
    """Returns values of a spec by name (`right.topic` is a side's), as checkpoints hold them in JSON.

    if_set   more names, each with a default: a value that equals it is left out
    places   where a value is in the spec, if not where its name says
    """
    identity = {name: _as_json(name, attrgetter(places.get(name, name))(spec)) for name in (*names, *if_set)}
    return {name: value for name, value in identity.items() if name not in if_set or value != if_set[name]}


def _as_json(name: str, value: object) -> object:
    if isinstance(value, str):  # also a choice of several; a key of one part is a list, as one of several is
        return [str(value)] if name.endswith(".key") else str(value)
    if isinstance(value, RecordFilter):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


def check_identity(
    what: str,
    name: str,
    was: Mapping[str, object],
    now: Mapping[str, object],
    wording: Wording,
    if_set: Mapping[str, object] = _NONE,
) -> None:
    """Raises `SpecChanged`, naming every value that differs.

    what, name   the kind of the job ("join"), and this job's name
    was, now     the values of the job that wrote the checkpoint, and of this one
    if_set       as in `identity_of`
    """
    changed = []
    for key, value in {**{key: default for key, default in if_set.items() if key in was}, **now}.items():
        if (earlier := was.get(key, if_set.get(key))) != value:
            (shown, before), (_, after) = wording.named(key, earlier), wording.named(key, value)
            changed.append(f"{shown}: {before} -> {after}")
    if changed:
        raise SpecChanged(
            f"the checkpoint belongs to another {what} than {name!r} ({'; '.join(changed)}): put the old values back, "
            f"or {wording.remedy}"
        )
