"""The keys of job files for readers, made from their models: JSON schema, and the table of docs/reference.md."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from configfile.models import models_in
from deploy.jobfile.jobkeys import JobKeys, TimedJobKeys
from deploy.jobfile.joinkeys import WindowJoinKeys

_FIRST = ("name", "kind", "kafka")


def json_schema(model: type[BaseModel] = WindowJoinKeys) -> dict[str, Any]:
    """JSON schema (2020-12) of a job file, for editors."""
    schema = model.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Teacup job file"}


def markdown_table(model: type[BaseModel] = WindowJoinKeys) -> str:
    """Key, default and meaning, one row per key, in the order of a job file."""
    rows = [f"| `{key}` | {default} | {_cell(meaning)} |" for key, default, meaning in _rows(model, "")]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in _ordered(model):
        inner = next(models_in(field.annotation), None)
        meaning = field.description or ""
        if inner is None or not field.is_required():
            yield f"{prefix}{name}", _default(field, inner), _allowed(field) + meaning
        if inner is not None:
            yield from _rows(inner, f"{prefix}{name}.")


def _ordered(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """The keys in the order of a job file: what the job is, its own keys, those that other jobs have too."""
    names = list(model.model_fields)
    if issubclass(model, JobKeys):
        timed = [name for name in TimedJobKeys.model_fields if name not in JobKeys.model_fields]
        common = [name for name in JobKeys.model_fields if name not in _FIRST]
        last = [name for name in (*timed, *common) if name in names]
        names = [*_FIRST, *(name for name in names if name not in (*_FIRST, *last)), *last]
    return [(model.model_fields[name].alias or name, model.model_fields[name]) for name in names]


def _default(field: FieldInfo, inner: type[BaseModel] | None) -> str:
    if field.is_required():
        return "required"
    default = field.default.value if isinstance(field.default, Enum) else field.default
    if default is None or default == {} or inner is not None:
        return "none"
    if isinstance(default, dict):
        return ", ".join(f"`{key}: {value}`" for key, value in default.items())
    return f"`{default}`"


def _allowed(field: FieldInfo) -> str:
    """The values of an enumeration, to be put before the meaning."""
    kind = field.annotation
    values = [one.value for one in kind] if isinstance(kind, type) and issubclass(kind, Enum) else get_args(kind)
    words = [value for value in values if isinstance(value, str)]
    return f"{', '.join(f'`{word}`' for word in words)}: " if words else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
