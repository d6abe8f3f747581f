"""Whether a checkpoint belongs to a job: the values that it is bound to, compared by their names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from joins.errors import SpecChanged


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


def identity_of(spec: object, names: Iterable[str]) -> dict[str, object]:
    """Returns values of a description by name, as checkpoints hold them in JSON; `right.topic` is one of its side."""
    return {name: _as_json(name, attrgetter(name)(spec)) for name in names}


def _as_json(name: str, value: object) -> object:
    if isinstance(value, str):  # also a choice of several; a key of one part is a list, as one of several is
        return [str(value)] if name.endswith(".key") else str(value)
    return list(value) if isinstance(value, tuple) else value


def check_identity(
    what: str, name: str, was: Mapping[str, object], now: Mapping[str, object], wording: Wording
) -> None:
    """Raises `SpecChanged`, naming every value that differs.

    what, name   the kind of the job ("join") and its name
    was, now     of the job that wrote the checkpoint, and of this one
    """
    changed = []
    for key, value in now.items():
        if was.get(key) != value:
            (shown, before), (_, after) = wording.named(key, was.get(key)), wording.named(key, value)
            changed.append(f"{shown}: {before} -> {after}")
    if changed:
        raise SpecChanged(
            f"the checkpoint of {name!r} belongs to another {what} ({'; '.join(changed)}): put the old values back, or "
            f"{wording.remedy}"
        )
