"""Configuration files that share values: `include: common.yaml`, or a list of files.

    common.yaml     kafka: {bootstrap.servers: ..., security.protocol: SASL_SSL}
    clicks.yaml     include: common.yaml
                    kafka: {client.id: clicks}

A file overrides what it includes, and a later included file overrides an earlier one: mappings are merged, everything
else is replaced, including lists. A path is relative to the file that names it. A file may include others in turn, but
not itself. `Merged.origins` knows which file each value is from, so that messages name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teacup.base.config.keys import Where
from teacup.base.errors import SettingsInvalid

INCLUDE = "include"


@dataclass(frozen=True, slots=True)
class Merged:
    """A file with what it includes. origins: the file that gave the value at a place, which is not a mapping."""

    values: dict[str, Any]
    origins: Mapping[Where, Path]

    def file_of(self, where: Where) -> Path | None:
        """Returns the file that gave the value at a place, or what is around it; None if no file did."""
        while where:
            if where in self.origins:
                return self.origins[where]
            where = where[:-1]
        return None


def merged(path: Path, load: Callable[[Path], dict[str, Any]], above: tuple[Path, ...] = ()) -> Merged:
    """Returns a file with what it includes. Raises what `load` raises, and `SettingsInvalid`."""
    here = load(path)
    names = here.pop(INCLUDE, [])
    names = [names] if isinstance(names, str) else names
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise SettingsInvalid(path, [f"{INCLUDE}: give the path of a file, or a list of them"])
    chain = (*above, path)
    values: dict[str, Any] = {}
    origins: dict[Where, Path] = {}
    for name in names:
        file = path.parent / name
        if file.resolve() in [one.resolve() for one in chain]:
            circle = " includes ".join(str(one) for one in (*chain, file))
            raise SettingsInvalid(path, [f"{INCLUDE}: {name} would never end: {circle}"])
        try:
            further = merged(file, load, chain)
        except SettingsInvalid as error:
            if error.source != file:
                raise
            raise SettingsInvalid(path, [f"{INCLUDE}: {file}: {problem}" for problem in error.problems]) from error
        _put(values, origins, further.values, further.origins.__getitem__)
    _put(values, origins, here, lambda _: path)
    return Merged(values, origins)


def _put(
    values: dict[str, Any],
    origins: dict[Where, Path],
    over: Mapping[str, Any],
    file_of: Callable[[Where], Path],
    around: Where = (),
) -> None:
    """Puts values over others, in place."""
    for key, value in over.items():
        where = (*around, key)
        if isinstance(value, dict) and value:
            if not isinstance(values.get(key), dict):
                _forget(origins, where)
                values[key] = {}
            _put(values[key], origins, value, file_of, where)
            continue
        _forget(origins, where)
        values[key], origins[where] = value, file_of(where)


def _forget(origins: dict[Where, Path], where: Where) -> None:
    for where_set in [where_set for where_set in origins if where_set[: len(where)] == where]:
        del origins[where_set]
