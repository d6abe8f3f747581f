r"""Fields of JSON values, a whole batch at once: event time, parts of the join key, and whether it is JSON. Pure.

    time   a number since the epoch, or a text, as `teacup.kafka.records.written_times` says; anything else is null
    key    the text that the field holds, so that a JSON field, a header and Kafka's key can be compared:

           "7"                          7         a string is its text
           7                            7         an integer is its decimal digits, however many: the same key as "7"
           7.0   7e0   0.7e1            7         a number that is whole, below 2^53
           -0                           0
           true                         true      as the text "true"
           null, or no such field                 null
           7.5   1e-400  1e300 [7]   {"a":7}      odd: not usable as a key
           "\\ud800"                              odd: half a surrogate pair, which no text can hold

    kept   an object of some fields, each at its place and as it is written: of `{"a": {"b": 1.50, "c": 2}}` the path
           `$.a.b` keeps `{"a":{"b":1.50}}`; what a record lacks is missing

What is not JSON, as RFC 8259 defines it, has no fields; of several fields of one name the first counts. C
(`teacup.kafka.native`) reads each document once, for all of its fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeAlias, Union, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from teacup.kafka.native.json import HALF, NESTED, NUMBER, FoundFields, Steps, find_fields
from teacup.kafka.records.written_times import Times, TimeUnit, times_of

PATH = re.compile(r'\$(\.([A-Za-z_][\w-]*|"[^"]+")|\[\d{1,9}\])+')
"""A JSON path that names one field."""

_STEP = re.compile(r'\.(?:"([^"]+)"|([\w-]+))|\[(\d+)\]')
_EXACT_BELOW = 2**53
_Tree: TypeAlias = Mapping[str, Union[int, "_Tree"]]


@dataclass(frozen=True, slots=True)
class JsonFields:
    """Columns of one batch.

    json    whether the value is JSON; true for a null value
    time    None if no time was asked for
    keys    text, one column per key field; odd: whether some key field of the record holds what cannot be a key
    others  text as in keys, one column per other field
    kept    objects of the kept fields, as text, null if there is no JSON; None if none were asked for
    """

    json: pa.Array
    time: Times | None
    keys: tuple[pa.Array, ...]
    odd: pa.Array
    others: tuple[pa.Array, ...]
    kept: pa.Array | None


def json_fields(
    values: pa.Array,
    time: str | None,
    keys: Sequence[str] = (),
    keep: Sequence[str] = (),
    unit: TimeUnit = TimeUnit.MS,
    others: Sequence[str] = (),
) -> JsonFields:
    """Reads the fields at these JSON paths in each value (binary); paths in `keep` lead through no array."""
    text = text_of(values)
    first_key = 0 if time is None else 1
    first_other = first_key + len(keys)
    first_kept = first_other + len(others)
    paths = [*(() if time is None else (time,)), *keys, *others, *keep]
    fields = find_fields(text, [_steps_of(path) for path in paths])
    of_keys = [_key(fields, field) for field in range(first_key, first_other)]
    is_json, kept = fields.json, None
    if text.null_count > values.null_count:  # some are not UTF-8
        is_json = pc.and_(is_json, pc.or_(text.is_valid(), values.is_null()))
    if keep:
        kept = pc.if_else(pc.and_(is_json, text.is_valid()), _objects(fields, _tree_of(keep, first_kept)), None)
    return JsonFields(
        json=is_json,
        time=None if time is None else times_of(fields.texts(0)[0], unit),
        keys=tuple(texts for texts, _ in of_keys),
        odd=pa.array(np.logical_or.reduce([np.zeros(len(values), np.bool_), *(odd for _, odd in of_keys)])),
        others=tuple(_key(fields, field)[0] for field in range(first_other, first_kept)),
        kept=kept,
    )


def _key(fields: FoundFields, field: int) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Returns the texts of a field as keys, null where there is none, and which are odd."""
    texts, holds = fields.texts(field)
    odd, numbers = (holds == NESTED) | (holds == HALF), holds == NUMBER
    if numbers.any():
        digits = [_whole(number) for number in texts.filter(pa.array(numbers)).to_pylist()]
        odd[numbers] = [number is None for number in digits]
        texts = pc.replace_with_mask(texts, pa.array(numbers), pa.array(digits, pa.string()))
    return texts, odd


def _whole(number: str) -> str | None:
    """Returns the digits of a JSON number that is whole; None for any other, and from 2^53 on."""
    try:
        exact = Decimal(number)
    except InvalidOperation:  # an exponent of 19 digits or more
        return None
    return str(int(exact)) if abs(exact) < _EXACT_BELOW and exact == exact.to_integral_value() else None


def text_of(values: pa.Array) -> pa.Array:
    """Returns values as text; null if a value is not UTF-8 (and so not JSON)."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(map(decoded, values.to_pylist()), pa.string())


def decoded(value: bytes | None) -> str | None:
    """Returns the value as text; None if it is not UTF-8, or null."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _objects(fields: FoundFields, tree: _Tree) -> pa.Array:
    """Returns objects of the members of a tree that are there."""
    import polars as pl  # not at the top: whoever keeps whole values needs none

    def object_of(tree: _Tree) -> pl.Expr:
        members = [
            pl.concat_str(pl.lit(json.dumps(name, ensure_ascii=False) + ":"), value_of(inner))
            for name, inner in tree.items()
        ]
        return pl.concat_str(pl.lit("{"), pl.concat_str(members, separator=",", ignore_nulls=True), pl.lit("}"))

    def value_of(inner: int | _Tree) -> pl.Expr:
        if isinstance(inner, int):
            return pl.lit(pl.Series(fields.values(inner)))
        return pl.when((value := object_of(inner)) != "{}").then(value)

    return pl.select(object_of(tree)).to_series().to_arrow().cast(pa.string())


def first_name(path: str) -> str:
    """Returns the top-level field that a JSON path leads through."""
    return str(_steps_of(path)[0])


def _steps_of(path: str) -> Steps:
    return tuple(int(number) if number else quoted or plain for quoted, plain, number in _STEP.findall(path))


def _tree_of(paths: Iterable[str], first: int) -> _Tree:
    """Nests the names of the paths; each leaf is the number of its field. A path below another one adds nothing."""
    root: dict[str | int, object] = {}
    for field, steps in sorted(enumerate(map(_steps_of, paths), first), key=lambda numbered: len(numbered[1])):
        inner: object = root
        for name in steps[:-1]:
            inner = inner.setdefault(name, {}) if isinstance(inner, dict) else inner
        if isinstance(inner, dict):
            inner.setdefault(steps[-1], field)
    return cast(_Tree, root)
