"""The keys of configuration files for readers, made from their models: JSON schema of job files, tables of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from deploy.jobfile.job_keys import JobKeys, TimedJobKeys
from deploy.jobfile.join_keys import WindowJoinKeys
from teacup.base.config.keys import models_in

_FIRST = ("name", "kind", "kafka")
_MIB = 1 << 20


def json_schema(model: type[BaseModel] = WindowJoinKeys) -> dict[str, Any]:
    """Returns the JSON schema (2020-12) of a job file, for editors."""
    schema = model.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Teacup job file"}


def markdown_table(model: type[BaseModel] = WindowJoinKeys) -> str:
    """Returns a table with one row per key, in the order of a file: key, default, meaning; `[]` marks a list."""
    rows = [f"| `{key}` | {default} | {_cell(meaning)} |" for key, default, meaning in _rows([model], "")]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _rows(models: Sequence[type[BaseModel]], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of a mapping that has one model or several; a key that several models have is one row."""
    fields: dict[str, list[FieldInfo]] = {}
    for model in models:
        for name, field in _ordered(model):
            fields.setdefault(name, []).append(field)
    for name, (field, *others) in fields.items():
        inner = list(models_in(field.annotation))
        if not inner or not field.is_required():
            meaning = next((described.description for described in (field, *others) if described.description), "")
            yield f"{prefix}{name}", _default(field, bool(inner)), _allowed([field, *others]) + meaning
        if inner:
            yield from _rows(inner, f"{prefix}{name}{'[]' if get_origin(field.annotation) is tuple else ''}.")


def _ordered(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """Returns the keys in the order of a job file: what the job is, its own keys, those that other jobs have too.

    Of other files, the required keys come first.
    """
    names = sorted(model.model_fields, key=lambda name: not model.model_fields[name].is_required())
    if issubclass(model, JobKeys):
        names = list(model.model_fields)
        timed = [name for name in TimedJobKeys.model_fields if name not in JobKeys.model_fields]
        common = [name for name in JobKeys.model_fields if name not in _FIRST]
        last = [name for name in (*timed, *common) if name in names]
        names = [*_FIRST, *(name for name in names if name not in (*_FIRST, *last)), *last]
    return [(model.model_fields[name].alias or name, model.model_fields[name]) for name in names]


def _default(field: FieldInfo, holds_keys: bool) -> str:
    if field.is_required():
        return "required"
    default = field.default.value if isinstance(field.default, Enum) else field.default
    if default in (None, {}, (), frozenset()) or holds_keys:
        return "none"
    if isinstance(default, dict):
        return ", ".join(f"`{key}: {value}`" for key, value in default.items())
    text = str(default).lower() if isinstance(default, bool) else f"{default:g}" if type(default) is float else default
    size = f" ({default // _MIB} MiB)" if type(default) is int and default and default % _MIB == 0 else ""
    return f"`{text}`{size}"


def _allowed(fields: Sequence[FieldInfo]) -> str:
    """Returns the values of an enumeration, which come before the meaning."""
    words: list[str] = []
    for kind in (field.annotation for field in fields):
        if isinstance(kind, type) and issubclass(kind, Enum):
            values = [member.value for member in kind]
        else:
            values = list(get_args(kind))
        words += [value for value in values if isinstance(value, str)]
    return f"{', '.join(f'`{word}`' for word in words)}: " if words else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
