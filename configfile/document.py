"""A configuration file, read and validated: `Document.read(path).as_model(Keys)`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from configfile.assignments import ModelOf, assigned
from configfile.errors import SettingsInvalid
from configfile.keys import Where
from configfile.problems import Problems, dotted, lines, problems_of, worded
from configfile.yamlfile import load_yaml, with_env

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """A YAML file as data. It may hold secrets, so its repr shows only its source.

    raw      the mapping as it is in the file, and on the command line
    values   the same with variables replaced
    faults   variables that could not be replaced, and assignments that could not be read
    given    places that the command line set, not the file
    """

    source: Path
    raw: Mapping[str, Any]
    values: Mapping[str, Any]
    faults: Problems
    given: tuple[Where, ...] = ()

    def __repr__(self) -> str:
        return f"Document({str(self.source)!r})"

    @classmethod
    def read(
        cls,
        path: Path,
        environ: Mapping[str, str] = os.environ,
        assignments: Sequence[str] = (),
        model_of: ModelOf = lambda _: None,
    ) -> Document:
        """Reads the document from a YAML file. Raises `SettingsInvalid` if it is not a mapping in YAML.

        assignments   `key=value` from the command line, which override the file
        """
        raw, given, faults = assigned(load_yaml(path), assignments, model_of)
        values, unset = with_env(raw, environ)
        return cls(path, raw, values, [*faults, *unset], given)

    def as_model(self, model: type[M], also: Problems | None = None) -> M:
        """Returns its values as a model. Raises `SettingsInvalid` with every problem; `also`: what the caller found."""
        try:
            keys, found = model.model_validate(self.values), []
        except ValidationError as error:
            keys, found = None, problems_of(model, self.raw, error)
        problems = list(self.faults)
        for more in (found, [(where, worded(self.raw, where, what)) for where, what in also or []]):
            known = {where for where, _ in problems}
            problems += [(where, what) for where, what in more if where not in known]
        if keys is None or problems:
            raise self.refused(problems) from None  # pydantic's error quotes secrets
        return keys

    def refused(self, problems: Problems) -> SettingsInvalid:
        """Returns the error that reports these problems."""
        return SettingsInvalid(self.source, lines([(self._place(where), what) for where, what in problems]))

    def _place(self, where: Where) -> Where:
        """Returns the place as a message names it: `--set left.topic` for what the command line gave."""
        given = any(where[: len(place)] == place for place in self.given)
        return (f"--set {dotted(where)}",) if given else where
