"""`key=value` from the command line: a value of a file replaced for one run.

The key is dotted (`left.topic`), the value is YAML. What is wrong with either is reported like the same fault in the
file, at the place `--set left.topic`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel

from configfile.keys import Where
from configfile.models import split
from configfile.problems import Problems
from configfile.yamlfile import value_of

ModelOf = Callable[[Mapping[str, Any]], type[BaseModel] | None]
"""The model of a document, by its content; None if it has none."""


def assigned(
    document: Mapping[str, Any], texts: Sequence[str], model_of: ModelOf
) -> tuple[dict[str, Any], tuple[Where, ...], Problems]:
    """Returns the document with every `key=value`, the places that they set, and a problem for each invalid text."""
    pairs: list[tuple[str, Any]] = []
    problems: Problems = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not all(key.split(".")):
            problems.append(((f"--set {text}",), "write it as key=value, with a dot between levels: left.topic=clicks"))
            continue
        try:
            pairs.append((key, value_of(value)))
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", None) or "it cannot be read"
            problems.append(((f"--set {key}",), f"not YAML: {problem}"))
    changed = copy.deepcopy(dict(document))
    model = model_of(changed | dict(pairs))
    places = tuple(_put(changed, (key,) if model is None else split(model, key), value) for key, value in pairs)
    return changed, places, problems


def _put(document: dict[str, Any], where: Where, value: Any) -> Where:
    """Sets a value. Returns the first place that was not a mapping before, or that of the value."""
    new = where
    for depth, step in enumerate(where[:-1], start=1):
        if not isinstance(document.get(str(step)), dict):
            document[str(step)] = {}
            new = min(new, where[:depth], key=len)
        document = document[str(step)]
    document[str(where[-1])] = value
    return new
