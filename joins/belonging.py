"""Whether a checkpoint belongs to a job: the values that it is bound to, compared by their names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from joins.errors import SpecChanged


def identity_of(spec: object, names: Iterable[str]) -> dict[str, object]:
    """The values of a description by name, as a checkpoint has them in JSON; `right.topic` is a value of its side."""
    return {name: _as_json(name, attrgetter(name)(spec)) for name in names}


def _as_json(name: str, value: object) -> object:
    if isinstance(value, str):  # also a choice of several; a key of one part is a list, as one of several is
        return [str(value)] if name.endswith(".key") else str(value)
    return list(value) if isinstance(value, tuple) else value


def check_identity(what: str, name: str, was: Mapping[str, object], now: Mapping[str, object], remedy: str) -> None:
    """Raise `SpecChanged`, naming every value that differs.

    what, name   the kind of the job ("join") and its name
    was, now     of the job that wrote the checkpoint, and of this one
    remedy       what to do, unless the old values are put back
    """
    changed = [f"{key}: {was.get(key)!r} -> {value!r}" for key, value in now.items() if was.get(key) != value]
    if changed:
        raise SpecChanged(
            f"the checkpoint of {name!r} belongs to another {what} ({'; '.join(changed)}): put the old values back, or "
            f"{remedy}"
        )
