"""The keys that a configuration file may have, and what is wrong with a file, as `where: what`. Pure.

A file's model derives from `Keys`; its fields are the keys. What pydantic finds wrong with a file becomes problems: the
place, the value, and what is allowed there. The value is shown as it is in the file, so that values from the
environment are never echoed. Values of secret names and of unknown keys, and texts instead of a mapping, are not shown
at all.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from teacup.base.fields import MASK, is_secret, property_text, shortened, without_password
from teacup.base.times import DURATION, duration_ms, duration_s

Where = tuple[str | int, ...]
"""A place in a file: keys and list indexes from the top."""

Problems = list[tuple[Where, str]]
"""Where and what."""

_WRITTEN = WithJsonSchema({"type": "string", "pattern": DURATION, "examples": ["250ms", "10s", "1m 30s", "2h"]})
Duration = Annotated[int, BeforeValidator(duration_ms), _WRITTEN]
"""Milliseconds; in a file with a unit."""
Seconds = Annotated[float, BeforeValidator(duration_s), _WRITTEN]
"""The same as `Duration`, in seconds."""


class Keys(BaseModel):
    """A mapping with known keys only, frozen after validation. A key's name in the file is its alias, if it has one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def as_written(text: str) -> Any:
    """Returns a default as it would appear in a file; it is validated like a value of the file."""
    return text


def at_keys(problems: Iterable[tuple[Where | str, str]]) -> ValidationError:
    """Returns the error that a validator raises for problems at keys below its own. Pydantic adds its own place."""
    return ValidationError.from_exception_data(
        "keys",
        [
            InitErrorDetails(
                type=PydanticCustomError("at_key", "{what}", {"what": what}),
                loc=where if isinstance(where, tuple) else (where,),
                input=None,
            )
            for where, what in problems
        ],
    )


_API_URL = r"^https?://([^/?#@\s]*@)?(\[[0-9a-fA-F:.]+\]|[^/?#:@\[\]\s]+)(:\d+)?(/[^?#\s]*)?$"


def api_url(value: str) -> str:
    """Returns the address of an API.

    A path is allowed, because a proxy may put the API anywhere, but not the path of a call.
    """
    if not re.match(_API_URL, value):
        raise ValueError("give http(s)://host:port")
    if re.search(r"[^/]/v1(/|$)", value):
        raise ValueError("leave /v1 and what follows out, which each call adds")
    return value


def as_texts(given: object) -> object:
    """Returns properties as the texts that Kafka and Spark take, including YAML's numbers and `true`."""
    if not isinstance(given, dict):
        return given  # the field itself reports the wrong type
    options = texts(given)
    if len(options) < len(given):
        raise at_keys((str(key), "give one value") for key in given if str(key) not in options)
    return options


def texts(given: Mapping[Any, object]) -> dict[str, str]:
    """Returns the properties that have one value, as text."""
    return {str(key): property_text(value) for key, value in given.items() if isinstance(value, str | int | float)}


Text = Annotated[str, Field(min_length=1)]
ApiUrl = Annotated[Text, AfterValidator(api_url)]
Properties = Annotated[dict[str, str], BeforeValidator(as_texts)]


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the keys of a model as written in a file, and what each means."""
    return {field.alias or name: field.description or "" for name, field in model.model_fields.items()}


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yields the models that a value of this type may be, or contain."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def split(model: type[BaseModel], key: str) -> Where:
    """Returns the place of a dotted key.

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
    annotations = (field.annotation for name, field in model.model_fields.items() if key == (field.alias or name))
    return next(annotations, None)


_OF_NAMES = ("[A-Za-z0-9._-]", "[A-Za-z0-9_.-]")
_IN_OUR_WORDS = {
    "literal_error": "give {expected}",
    "enum": "give {expected}",
    "union_tag_invalid": "give {expected_tags}",
    "string_pattern_mismatch": "give a text of the form {pattern}",
    "string_too_short": "give a text that is not empty",
    "string_too_long": "give at most {max_length} characters",
    "string_type": "give a text; quote what YAML takes for something else",
    "path_type": "give a path",
    "int_type": "give a whole number",
    "int_parsing": "give a whole number",
    "int_from_float": "give a whole number",
    "float_type": "give a number",
    "float_parsing": "give a number",
    "bool_type": "give true or false",
    "bool_parsing": "give true or false",
    "greater_than_equal": "give {ge} or more",
    "greater_than": "give more than {gt}",
    "less_than_equal": "give {le} or less",
    "too_short": "give at least {min_length}",
    "tuple_type": "give a list",
    "list_type": "give a list",
    "frozen_set_type": "give a list",
    "none_required": "leave it out",
}
"""Replacements for pydantic's words that are meant for programmers."""


def problems_of(model: type[BaseModel], raw: Mapping[str, Any], error: ValidationError) -> Problems:
    """Returns every problem of a document that `model` refused.

    raw   the document as it is in the file, from which values are shown
    """
    parts = error.errors(include_url=False)
    # A list whose items were refused is also reported as too short.
    relevant = [part for part in parts if not (part["type"] == "too_short" and _has_inner(part, parts))]
    return [_problem(model, raw, part) for part in relevant]


def lines(problems: Problems) -> list[str]:
    """Returns each problem as `where: what`, with the place as people write it: `left.topic`."""
    return [f"{dotted(where)}: {what}" if where else what for where, what in problems]


def dotted(where: Where) -> str:
    """Returns a place in a document as people write it: `left.topic`."""
    return ".".join(map(str, where))


def shown(raw: Mapping[str, Any], where: Where) -> str:
    """Returns a value as it is in the file, quoted and shortened. Secrets are masked."""
    value = MASK if any(is_secret(str(step)) for step in where) else _value_at(raw, where)[1]
    value = without_password(value) if isinstance(value, str) else value
    return shortened(repr(value) if isinstance(value, str) else json.dumps(value, default=str))


def instead(unknown: str, allowed: Sequence[str]) -> str:
    """Returns what may be given instead of an unknown name: the most similar name, or all if none is similar."""
    close = most_similar(unknown, allowed)
    return f"did you mean {close}?" if close else f"allowed: {', '.join(allowed) or 'none'}"


def most_similar(unknown: str, allowed: Sequence[str]) -> str | None:
    """Returns the allowed name that was probably meant; None if none is similar."""
    return next(iter(difflib.get_close_matches(unknown, allowed, 1)), None)


def _places_of(model: type[BaseModel], key: str, *outer: str) -> Iterator[str]:
    """Yields where a file may have this key, as people write it. Items of lists are left out."""
    for name in meanings(model):
        field = _field(model, name)
        if name == key:
            yield dotted((*outer, name))
        if get_origin(field) not in (list, tuple):
            for inner in models_in(field):
                yield from _places_of(inner, key, *outer, name)


def _has_inner(outer: ErrorDetails, parts: list[ErrorDetails]) -> bool:
    depth = len(outer["loc"])
    return any(len(part["loc"]) > depth and part["loc"][:depth] == outer["loc"] for part in parts)


def _problem(model: type[BaseModel], raw: Mapping[str, Any], error: ErrorDetails) -> tuple[Where, str]:
    where, outer, inner = walked(model, error["loc"])
    kind = error["type"]
    if kind == "missing":
        meaning = {} if outer is None else meanings(outer)
        text = meaning.get(str(where[-1]))
        return where, "is missing" + (f"; it is: {text}" if text else "")
    if kind == "extra_forbidden":
        unknown, places = str(where[-1]), list(_places_of(model, str(where[-1])))
        if places:
            return where, f"unknown key; did you mean {' or '.join(places)}?"
        return where, f"unknown key; {instead(unknown, [] if outer is None else list(meanings(outer)))}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        keys = f" with {', '.join(meanings(inner))}" if inner else " of names to values"
        return where, f"give a mapping{keys}; this is {_kind_of(_value_at(raw, where)[1])}"
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        where = (*where, error["ctx"]["discriminator"].rsplit(" ", 1)[-1].strip("'"))  # the alias is the last
    if kind == "union_tag_not_found":
        return where, "is missing"
    return where, worded(raw, where, _allowed(error))


def worded(raw: Mapping[str, Any], where: Where, what: str) -> str:
    """Returns what is wrong at a place, with the value if there is one; `what` may be a sentence (`is missing`)."""
    there, value = _value_at(raw, where)
    if what.startswith("is ") or not there or isinstance(value, dict | list):
        return what
    return f"{shown(raw, where)} is not allowed: {what}"


def _allowed(error: ErrorDetails) -> str:
    """Returns what a value must be."""
    context = error.get("ctx", {})
    if any(letters in context.get("pattern", "") for letters in _OF_NAMES):
        return "only letters, digits, dot, underscore and hyphen"
    template = _IN_OUR_WORDS.get(error["type"])
    return template.format(**context).replace("'", "") if template else error["msg"].removeprefix("Value error, ")


def _value_at(document: Any, where: Where) -> tuple[bool, Any]:
    """Returns whether there is a value at a place, and the value."""
    for step in where:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):  # TypeError: a step into a text, or into nothing
            return False, None
    return True, document


def _kind_of(value: Any) -> str:
    names = {str: "a text", dict: "a mapping", list: "a list", bool: "true or false", type(None): "empty"}
    return names.get(type(value), "a number")
