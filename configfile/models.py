"""The keys that a model allows at a place of a file, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from configfile.keys import Where


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the keys of a model as they are written in a file, and what each means."""
    return {field.alias or name: field.description or "" for name, field in model.model_fields.items()}


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yields the models that a value of this type may be, or contain."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def split(model: type[BaseModel], key: str) -> Where:
    """Returns the place that a dotted key means.

    `kafka.bootstrap.servers` is two steps, because properties have dots themselves.
    """
    first, dot, rest = key.partition(".")
    field = _field(model, first)
    inner = None if field is None else next(models_in(field), None)
    if not dot:
        return (first,)
    return (first, rest) if inner is None else (first, *split(inner, rest))


def walked(
    model: type[BaseModel], loc: tuple[int | str, ...]
) -> tuple[Where, type[BaseModel] | None, type[BaseModel] | None]:
    """Returns the place in the file, the model around it and the model at it.

    The models are None where any key is allowed (properties). Pydantic's place has one more step for which model of a
    union was chosen; the file has none.
    """
    outer: type[BaseModel] | None = None
    candidates: list[type[BaseModel]] = [model]
    where: list[str | int] = []
    for step in loc:
        if isinstance(step, str) and step.startswith("<"):  # the tag of a union in which not all are models
            continue
        if len(candidates) > 1:
            candidates = [candidate for candidate in candidates if _is_tagged(candidate, step)]
            continue
        where.append(step)
        if isinstance(step, int):
            continue
        outer = candidates[0] if candidates else None
        field = None if outer is None else _field(outer, step)
        candidates = list(dict.fromkeys(models_in(field)))
    return tuple(where), outer, candidates[0] if candidates else None


def _is_tagged(model: type[BaseModel], tag: int | str) -> bool:
    """Returns whether the tag chooses this model from a union: one of its keys allows only `tag`."""
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())


def _field(model: type[BaseModel], key: str) -> Any:
    """Returns the type of a key; None if there is no such key."""
    found = (field.annotation for name, field in model.model_fields.items() if key == (field.alias or name))
    return next(found, None)
