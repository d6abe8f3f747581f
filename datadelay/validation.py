"""Reads a document as a pydantic model, with errors that name the key, the value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from datadelay.errors import ConfigInvalid

M = TypeVar("M", bound=BaseModel)

_SECRET = re.compile(r"password|secret|token|key|credential", re.IGNORECASE)


def validated(model: type[M], document: Mapping[str, Any], source: str) -> M:
    """`document` as a `model`. Raises `ConfigInvalid` with every wrong key; secret values are not shown."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        parts = error.errors(include_url=False)
        # A list whose items were refused is then also reported as too short: left out.
        told = [part for part in parts if not (part["type"] == "too_short" and _inside(part, parts))]
        faults = (_fault(model, part) for part in told)
        raise ConfigInvalid(f"{source}: " + "; ".join(faults)) from None  # the error quotes secrets


def _inside(outer: Any, parts: Iterable[Any]) -> bool:
    depth = len(outer["loc"])
    return any(len(part["loc"]) > depth and part["loc"][:depth] == outer["loc"] for part in parts)


def _fault(model: type[BaseModel], part: Any) -> str:
    loc = part["loc"]
    where = ".".join(map(str, loc))
    if part["type"] == "extra_forbidden":
        return f"{where}: unknown key; allowed: {', '.join(sorted(_allowed(model, loc[:-1])))}"
    if part["type"] == "missing":
        return f"{where}: missing"
    message = part["msg"].removeprefix("Value error, ")
    if isinstance(part["input"], dict | list | tuple):  # the error concerns several keys: the message names them
        return f"{where}: {message}" if where else message
    value = "***" if any(_SECRET.search(str(step)) for step in loc) else repr(part["input"])
    return f"{where}: {value if len(value) <= 100 else value[:97] + '...'} is not allowed: {message}"


def _allowed(model: type[BaseModel], loc: Iterable[int | str]) -> set[str]:
    """The keys of the models that an error's location leads to; the tag of a union is a step of its own."""
    models = {model}
    for step in loc:
        fields = [(one, name, field) for one in models for name, field in one.model_fields.items()]
        named = [field.annotation for _, name, field in fields if step in (name, field.alias)]
        inside = {part for annotation in named for part in _models(annotation)}
        tagged = {one for one, _, field in fields if step in get_args(field.annotation)}
        models = inside or tagged or models
    return {field.alias or name for one in models for name, field in one.model_fields.items()}


def _models(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in get_args(annotation) for model in _models(part)}
