r"""Fields of JSON values, a whole batch in one query: event time, parts of the join key, and whether it is JSON. Pure.

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

    kept   an object of some fields, each at its place: of `{"a": {"b": 1, "c": 2}}` the path `$.a.b` keeps
           `{"a": {"b": 1}}`; what a record lacks is missing

What is not JSON (`teacup.kafka.records.json_text`) has no fields. DuckDB (yyjson) parses each document once for all of
its fields: this is cheaper than a query per field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from teacup.kafka.records.json_text import Halves, decoded, holding, mark_of, selected, valid_json
from teacup.kafka.records.written_times import Times, TimeUnit, fraction, integer, times_of, usual

PATH = re.compile(r'\$(\.([A-Za-z_][\w-]*|"(?!\*")[^"]+(?<!\\)")|\[\d{1,9}\])+')
"""A JSON path that names one field. DuckDB does not read a backslash at the end of a name, nor larger indexes."""

_EXACT_BELOW = 2**53
_INEXACT = r"[0-9]{12}\.[0-9]|\.(0000|9999)|[0-9.]{16}[eE]|[0-9][eE]-[0-9]{3,}[,}\]\s]"
"""Matches the text of every fraction whose double is whole: it is close to that number, has more digits than a double,
or has a large negative exponent. It also matches other numbers and texts."""
_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*+"|(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)')


@dataclass(frozen=True, slots=True)
class JsonFields:
    """Columns of one batch.

    time  None if no time was asked for
    keys  text, one column per key field; odd: whether some key field of the record holds what cannot be a key
    json  whether the value is JSON; true for a null value
    kept  objects of the kept fields, as text, null if there is no JSON; None if none were asked for
    held  for each field that was asked for, whether it holds one of its texts, as keys are text
    """

    time: Times | None
    keys: tuple[pa.Array, ...]
    odd: pa.Array
    json: pa.Array
    kept: pa.Array | None = None
    held: tuple[pa.Array, ...] = ()


def json_fields(
    values: pa.Array,
    time: str | None,
    keys: Sequence[str] = (),
    keep: Sequence[str] | None = None,
    unit: TimeUnit = TimeUnit.MS,
    held: Sequence[tuple[str, Sequence[str]]] = (),
) -> JsonFields:
    """Reads the fields at these JSON paths in each value (binary); paths in `keep` lead through no array.

    held   the texts that a field may hold, each with its path
    """
    text = text_of(values)
    holds = [_holding(text, path, texts) for path, texts in held]
    json = holds[0][0] if holds else valid_json(text)
    if text.null_count > values.null_count:  # some are not UTF-8
        json = pc.and_(json, pc.or_(text.is_valid(), values.is_null()))
    if pc.all(json).as_py() is False:
        text = pc.if_else(json, text, None)
    sure = tuple(_sure(text, path, texts, *found[1:]) for (path, texts), found in zip(held, holds, strict=True))
    if time is None and not keys and not keep:
        return JsonFields(None, (), pa.repeat(False, len(values)), json, held=sure)
    found = _read(_query(time, keys, keep or (), unit), text)
    key_columns = tuple(found[f"key{i}"] for i in range(len(keys)))
    times = None if time is None else _times(found["time"], found["text"], unit)
    return JsonFields(times, key_columns, found["odd"], json, found.get("kept"), sure)


def _holding(text: pa.Array, path: str, texts: Sequence[str]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """As `teacup.kafka.records.json_text.holding`; not sure of any if the path is more than plain names."""
    if "[" not in path and "\\" not in path:
        return holding(text, _names_of(path), texts)
    return valid_json(text), pa.repeat(False, len(text)), pa.repeat(True, len(text))


def _sure(text: pa.Array, path: str, texts: Sequence[str], holds: pa.Array, unsure: pa.Array) -> pa.Array:
    """Returns which of these JSON texts hold a text at a path; what is unsure is looked at again."""
    unsure = pc.and_(unsure, text.is_valid())
    if not pc.any(unsure).as_py():
        return holds
    found = _read(_query(None, [path], (), TimeUnit.MS), text.filter(unsure))["key0"]
    return pc.replace_with_mask(holds, unsure, pc.is_in(found, pa.array(texts, pa.string())))


def _read(query: str, text: pa.Array) -> dict[str, pa.Array]:
    found = _fields(query, text)
    return found | _exact_keys(query, text, found) if found["odd"].null_count else found


def _times(times: pa.Array, texts: pa.Array, unit: TimeUnit) -> Times:
    """Returns the times of a batch; texts: those that are not written in the usual way, otherwise null."""
    rare = texts.is_valid()
    if not pc.any(rare).as_py():
        return Times(times)
    read = times_of(texts.filter(rare), unit)
    local = None
    if read.local is not None:
        local = pc.replace_with_mask(pa.nulls(len(times), read.local.type), rare, read.local)
    return Times(pc.replace_with_mask(times, rare, read.utc), local)


def _fields(query: str, text: pa.Array) -> dict[str, pa.Array]:
    found = _answer(query, text)
    unread = pc.and_(pc.invert(found.pop("read")), text.is_valid())
    if not pc.any(unread).as_py():
        return found
    with_halves = _with_halves(query, text.filter(unread))
    return {name: pc.replace_with_mask(column, unread, with_halves[name]) for name, column in found.items()}


def _answer(query: str, text: pa.Array) -> dict[str, pa.Array]:
    table = selected(query, {"value": text})
    return {name: column.combine_chunks() for name, column in zip(table.column_names, table.columns, strict=True)}


def _with_halves(query: str, text: pa.Array) -> dict[str, pa.Array]:
    """Reads fields of JSON texts with half a surrogate pair, which DuckDB cannot read. No key may have a half."""
    texts = text.to_pylist()
    halves = Halves(texts)
    found = _answer(query, pa.array(map(halves.marked, texts), pa.string()))
    for name in [name for name in found if name.startswith("key")]:
        has_half = pc.match_substring(found[name], halves.mark).fill_null(False)
        found["odd"] = pc.or_kleene(found["odd"], has_half)
        found[name] = pc.if_else(has_half, None, found[name])
    if "kept" in found:
        found["kept"] = pc.replace_substring(found["kept"], halves.mark, "\\u")
    return found


def _exact_keys(query: str, values: pa.Array, found: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Returns the keys, and whether they are odd if that was null, by the digits of each number, read as text."""
    doubtful = pc.and_(found["odd"].is_null(), pc.match_substring_regex(values, _INEXACT))
    odd = pc.fill_null(found["odd"], False)
    if not pc.any(doubtful).as_py():
        return {"odd": odd}
    texts = values.filter(doubtful).to_pylist()
    mark = mark_of(texts)
    marked = [_STRING_OR_NUMBER.sub(lambda at: f'"{mark}{at[1]}"' if at[1] else at[0], text) for text in texts]
    read = _fields(query, pa.array(marked, pa.string()))
    exact_odd = read["odd"].to_pylist()
    exact = {}
    for name in [name for name in found if name.startswith("key")]:
        keys = read[name].to_pylist()
        for at, key in enumerate(keys):
            if key is not None and key.startswith(mark):
                keys[at] = whole(key.removeprefix(mark))
                exact_odd[at] |= keys[at] is None
        exact[name] = pc.replace_with_mask(found[name], doubtful, pa.array(keys, pa.string()))
    return {**exact, "odd": pc.replace_with_mask(odd, doubtful, pa.array(exact_odd, pa.bool_()))}


def whole(number: str) -> str | None:
    """Returns the digits of a JSON number that is whole; None for any other, and for an exponent from 2^53 on."""
    if number.lstrip("-").isdigit():
        return number
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


def _query(time: str | None, keys: Sequence[str], keep: Sequence[str], unit: TimeUnit) -> str:
    paths = [path for path in (time, *keys, *keep) if path is not None]
    first_key = 1 if time is None else 2  # DuckDB counts from 1
    first_kept = first_key + len(keys)
    of_keys = range(first_key, first_kept)
    of_time = f"{_time('fields[1]', unit)} as time" if time is not None else "null as time"
    rare = "case when time is null and json_type(fields[1]) = 'VARCHAR' then fields[1]->>'$' end as text"
    selected = ["time", rare] if time is not None else []
    selected += [f"{_key(f'fields[{at}]')} as key{i}" for i, at in enumerate(of_keys)]
    if keep:
        selected.append(f"case when fields is not null then {_members(_tree_of(keep), first_kept)} end as kept")
    odd = " or ".join(_odd(f"fields[{at}]") for at in of_keys) or "false"
    extracted = f"try(json_extract(value, [{', '.join(map(_quoted, paths))}]))"
    return f"""
        select {", ".join(selected)}, {odd} as odd, fields is not null as read
        from (select fields, {of_time} from (select {extracted} as fields from batch))"""


def _members(tree: dict[str, object], first: int) -> str:
    """Returns the query's text for an object of the members of a tree that are not null."""
    members = []
    for name, inner in tree.items():
        at = (
            f"nullif({_members(inner, first)}, '{{}}')"
            if isinstance(inner, dict)
            else f"fields[{first + int(str(inner))}]::varchar"
        )
        members.append(f"{_quoted(json.dumps(name, ensure_ascii=False) + ':')} || {at}")
    return f"'{{' || concat_ws(',', {', '.join(members)}) || '}}'"


def _time(field: str, unit: TimeUnit) -> str:
    return f"""case json_type({field})
        when 'UBIGINT' then {integer(field, unit)}
        when 'DOUBLE' then {fraction(field, unit)}
        when 'VARCHAR' then {usual(f"{field}->>'$'")}
        end"""


def _key(field: str) -> str:
    """Returns the query's text for a key.

    Integers of more than 64 bits have the type DOUBLE and keep their digits; yyjson formats other numbers.
    """
    return f"""case json_type({field})
        when 'VARCHAR' then {field}->>'$'
        when 'UBIGINT' then {field}::varchar
        when 'BIGINT' then {field}::varchar
        when 'BOOLEAN' then {field}::varchar
        when 'DOUBLE' then case
            when regexp_full_match({field}::varchar, '-?[0-9]+') then {field}::varchar
            when {_is_whole(field)} then try_cast({field} as bigint)::varchar end
        end"""


def _is_whole(field: str) -> str:
    number = f"try_cast({field} as double)"
    return f"abs({number}) < {_EXACT_BELOW} and {number} = trunc({number})"


def _odd(field: str) -> str:
    """Returns the query's text for whether a key is odd; null if the double is whole but the number may not be."""
    return f"""case json_type({field})
        when 'DOUBLE' then case
            when regexp_full_match({field}::varchar, '-?[0-9]+') then false
            when {_is_whole(field)} then null
            else true end
        else coalesce(json_type({field}) in ('OBJECT', 'ARRAY'), false) end"""


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def first_name(path: str) -> str:
    """Returns the top-level field that a JSON path leads through."""
    return _names_of(path)[0]


def _names_of(path: str) -> list[str]:
    """Returns the names of fields along a JSON path without array indexes."""
    return [name.strip('"') for name in re.findall(r'\.("[^"]+"|[\w-]+)', path)]


def _tree_of(paths: Iterable[str]) -> dict[str, object]:
    """Nests the names of the paths; each leaf is the number of its path. A path below another one adds nothing."""
    root: dict[str, object] = {}
    for number, path in sorted(enumerate(paths), key=lambda numbered: len(_names_of(numbered[1]))):
        inner: object = root
        *outer, last = _names_of(path)
        for name in outer:
            inner = inner.setdefault(name, {}) if isinstance(inner, dict) else inner
        if isinstance(inner, dict):
            inner.setdefault(last, number)
    return root
