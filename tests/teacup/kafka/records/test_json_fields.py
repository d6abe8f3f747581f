"""Strict JSON and its fields against the standard library's parser, and the cases that parsers differ in."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.native.json import find_fields
from teacup.kafka.records.json_fields import json_fields
from tests.support.jsontext import is_json

VALID = [
    *("[]", "{}", "null", "true", "false", "0", "-0", "-1", "1.5", "0e1", "1E+2", "1e-2", "-0.0e0", '""', '"a"'),
    *(" 1 ", "\t[ ]\r\n", "[[]   ]", '[null, 1, "1", {}]', '{"a":{"b":[{}]}}', '{"a":1,"a":2}', '{"":0}'),
    *('"\\u0000"', '"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\uD83D\\uDE00"', '"\x7f"', '"\u2028\u2029"', '"é😀"', '"\\u00e9"'),
    *('"\\ud800"', '["\\uDADA"]', '["\\uD888\\u1234"]', '"\\uDd1e\\uD834"', '{"\\udc00":1}', '"\\uD800\\uD800\\n"'),
    *("1" * 5_000, "1e400", "-1e-400", "0.4e00669999999999999999999999999999", "123123123123123123123123123123"),
    *('"NaN"', '"[NaN]"', '"a,]"', '{"a": ",}"}', '["-inf"]'),
    *("[" * 3_000 + "]" * 3_000, '{"a":' * 3_000 + "1" + "}" * 3_000),
]
INVALID = [
    *(
        "",
        " ",
        "\n",
        "nul",
        "nulll",
        "True",
        "NULL",
        "truefalse",
        "1 2",
        "- 1",
        "1 .5",
        "[1][2]",
        "1]",
        "{}}",
        "[]]",
        "]",
        "}",
        ",",
    ),
    *("[", "{", "[1", '{"a":1', '{"a"', '{"a":', "[1,", '["a', '"', '"\\"', "[{]}", "{[}]", '{"a":[}', "[" * 100_000),
    *("[1,]", "[,1]", "[,]", "[1,,2]", "[1 2]", "[1:2]", '{"a":1,}', '{"a":1,,"b":2}', "{,}", '{"a" 1}'),
    *(
        '{"a":1 "b":2}',
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{null:1}",
        '{"a"::1}',
        '{"a":}',
        "{:1}",
        '{"a":1:2}',
        '{"a","b"}',
        '["a":1]',
    ),
    *("NaN", "-NaN", "nan", "[NaN]", "Infinity", "-Infinity", "[Infinity]", '{"a": -inf}', '{"a":[1,NaN ]}', "[ Inf]"),
    *("01", "-01", "00", "1.", ".5", "-.5", "-", "+1", "1e", "1e+", "1.e1", "0x1", "1_0", "--1", "1,0", "²"),
    *('"\\x00"', '"\\u12"', '"\\u{1}"', '"\\ud80"', '"\\U1234"', '"\\a"', '"\\', '"\x00"', '"\n"', '"\t"', '"\x1f"'),
    *("\x0c1", "\x0b1", "\xa01", "\ufeff1", "\u20281", "[\u2060]", "[\x85]", "1\x00", "/**/1", "1//", "#1", "[1]/* */"),
    *('"a" "b"', "'a'", "`a`", '["a",\n"b",]', '{"a": [1, 2,\t]}', '{"a": "x", }', "[1,/**/]", "<null>", "[\\u0020]"),
]

PIECES = [
    *("{", "}", "[", "]", ",", ":", '"a"', '""', "1", "-0", "1.5", "1e5", "-", "+", ".", "e", "0", "0x1", "1e999"),
    *("NaN", "nan", "Infinity", "-Infinity", "inf", "true", "false", "null", "//", "/**/", "'", '"', "\\", '\\"'),
    *('"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00"', '"\\u0000"', '"\t"', '"\x00"', "\x7f", "\x85", "\u2028", "\xa0"),
    *("\n", " ", "\t", "\x0b", "\x00", "\ufeff"),
]
DOCUMENTS = [
    '{"a":[1,2,{"b":null}],"c":"x"}',
    '[1.5,"\\ud83d\\ude00",true, [] ]',
    '{"time":"2026-01-31T12:00:00Z","\\u00e9":-1E-7}',
]


def corpus(seed: int, count: int) -> list[str]:
    """Texts of random pieces, and documents in which a few characters were changed; one in twenty is JSON."""
    chance = random.Random(seed)
    texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 7))) for _ in range(count // 2)]
    while len(texts) < count:
        letters = list(chance.choice(DOCUMENTS))
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(letters))
            letters[at : at + chance.randint(0, 1)] = chance.choice([*PIECES, "", chr(chance.randrange(128))])
            letters = letters or [""]
        texts.append("".join(letters))
    return texts


def refused(name: str) -> None:
    raise ValueError(name)


def by_the_standard_library(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refused, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("texts", "expected"), [(VALID, True), (INVALID, False)])
def test_the_cases_that_parsers_differ_in(texts: list[str], expected: bool) -> None:
    """A column of all of them, and each alone."""
    together = find_fields(pa.array(texts, pa.string())).json.to_pylist()

    assert [text for text, ok in zip(texts, together, strict=True) if ok is not expected] == []
    assert [text for text in texts if is_json(text) is not expected] == []


def test_random_texts_get_the_answer_of_the_standard_library() -> None:
    """Ten thousand, of which one in twenty is JSON."""
    texts = corpus(7, 10_000)

    found = find_fields(pa.array(texts, pa.string())).json.to_pylist()

    expected = [by_the_standard_library(text) for text in texts]
    assert sum(expected) > 300
    assert [text for text, ok, right in zip(texts, found, expected, strict=True) if ok is not right] == []
    assert [text for text, right in zip(texts, expected, strict=True) if is_json(text) is not right] == []


def test_a_slice_with_nulls() -> None:
    """Nulls count as JSON; what lies before the slice does not show."""
    texts = pa.array(["{", None, "[1,]", "1", None, '"\\ud800"', "}"], pa.string())

    assert find_fields(texts.slice(1, 5)).json.to_pylist() == [True, False, True, True, True]
    assert find_fields(texts.slice(0, 0)).json.to_pylist() == []


ODD = object()
"""A field that cannot be a key."""

NAMES = ["a", "a", "a", "b", "\\u0061", "é", ""]
MANY_DIGITS = "123456789012345678901234567890"
FOUND = [
    *(
        '"x"',
        '"7"',
        "7",
        "7.0",
        "70e-1",
        "-0",
        "0",
        "-7",
        "true",
        '"true"',
        "null",
        "[7]",
        '{"a":"x"}',
        "7.5",
        "{}",
        "[]",
    ),
    *('"\\u0078"', '"\\ud800"', '"é"', '""', '"x\\\\"', MANY_DIGITS),
]
SPACES = ["", "", " ", "\n"]
PATHS = {
    "$.a": ("a",),
    "$.a.b": ("a", "b"),
    "$.b.a": ("b", "a"),
    '$."é"': ("é",),
    "$.a[0]": ("a", 0),
    "$.a[1].b": ("a", 1, "b"),
    "$[0].a": (0, "a"),
    '$."\\u0061"': ("\\u0061",),
    "$.a.a.a": ("a", "a", "a"),
}


def an_object(chance: random.Random, depth: int = 2) -> str:
    """An object of few names, some twice, with spaces, of values, objects, arrays; sometimes itself in one, or torn."""
    members = []
    for _ in range(chance.randint(0, 3)):
        value = an_object(chance, depth - 1) if depth and chance.random() < 0.5 else chance.choice(FOUND)
        if chance.random() < 0.2:
            value = f"[{value},{chance.choice(SPACES)}{an_object(chance, 0)}]"
        members.append(f'"{chance.choice(NAMES)}"{chance.choice(SPACES)}:{chance.choice(SPACES)}{value}')
    text = "{" + f"{chance.choice(SPACES)},".join(members) + "}"
    return {0: f"[{text}]", 1: text[:-1]}.get(chance.randint(0, 30), text)


def first_of_each(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(members))


def held_at(steps: tuple[str | int, ...], document: str | None) -> Any:
    """What the standard library finds: a key as text, `ODD`, or None."""
    try:
        at = json.loads(document or "", parse_float=Decimal, object_pairs_hook=first_of_each)
    except ValueError:
        return None
    for step in steps:
        if isinstance(step, int):
            at = at[step] if isinstance(at, list) and step < len(at) else None
        else:
            at = at.get(step) if isinstance(at, dict) else None
    if isinstance(at, bool):
        return "true" if at else "false"
    if isinstance(at, Decimal):
        return str(int(at)) if at == int(at) else ODD
    if isinstance(at, str):
        return ODD if any("\ud800" <= character <= "\udfff" for character in at) else at
    return ODD if isinstance(at, dict | list) else at if at is None else str(at)


@pytest.mark.parametrize("path", PATHS)
def test_a_field_is_what_the_standard_library_finds(path: str) -> None:
    """In objects within objects and arrays, names and texts with escapes, numbers; of two names the first counts."""
    chance = random.Random(7)
    documents = [*(an_object(chance) for _ in range(3_000)), None, "", "7"]
    values = pa.array(documents, pa.string()).cast(pa.binary())

    found = json_fields(values, None, [path], others=["$.b", path])

    expected = [held_at(PATHS[path], document) for document in documents]
    texts = [None if held is ODD else held for held in expected]
    assert found.keys[0].to_pylist() == texts
    assert found.others[1].to_pylist() == texts
    assert found.odd.to_pylist() == [held is ODD for held in expected]
    assert found.others[0].equals(json_fields(values, None, ["$.b"]).keys[0])
    assert sum(held is not None for held in expected) > 10 or path.startswith('$."')


SPELLED = st.lists(st.sampled_from(["half0:", "\\u0068alf0:", "half", "\\ud800"]), max_size=2).map("".join)


@given(st.lists(st.tuples(SPELLED, SPELLED), min_size=1, max_size=5))
def test_no_text_is_taken_for_a_half_of_a_surrogate_pair(texts: list[tuple[str, str]]) -> None:
    """Whatever it spells, escaped or not."""
    documents = [f'{{"k": "{key}", "v": "{value}"}}' for key, value in texts]

    found = json_fields(pa.array(documents, pa.string()).cast(pa.binary()), None, ["$.k"], ["$.v"])

    keys = [json.loads(document)["k"] for document in documents]
    odd = ["\ud800" in key for key in keys]
    assert found.odd.to_pylist() == odd
    assert found.keys[0].to_pylist() == [None if is_odd else key for key, is_odd in zip(keys, odd, strict=True)]
    assert found.kept is not None
    assert [json.loads(text)["v"] for text in found.kept.to_pylist()] == [json.loads(d)["v"] for d in documents]


def test_fields_are_those_of_strict_json_only() -> None:
    """What other parsers take for JSON has none; half a surrogate pair hides no field, is kept, and cannot be a key."""
    values = [
        b'{"t":5,"k":"a","v":1,}',
        b'{"t":5,"k":"a","v":NaN}',
        b'{"t":5,"k":"a","v":"\\uD800 half0: \\ud83d\\ude00"}',
        b'{"t":5,"k":"\\udc00","v":"\\\\ud800"}',
        b'{"t":5,"k":"a","v":"\xff"}',
        None,
    ]

    found = json_fields(pa.array(values, pa.binary()), "$.t", ["$.k"], ["$.v"])

    assert found.json.to_pylist() == [False, False, True, True, False, True]
    assert found.time is not None
    assert found.time.utc.to_pylist() == [None, None, 5, 5, None, None]
    assert found.keys[0].to_pylist() == [None, None, "a", None, None, None]
    assert found.odd.to_pylist() == [False, False, False, True, False, False]
    assert found.kept is not None
    kept = found.kept.to_pylist()
    assert [kept[at] for at in (0, 1, 4, 5)] == [None] * 4
    assert [json.loads(text) for text in kept[2:4]] == [{"v": "\ud800 half0: 😀"}, {"v": "\\ud800"}]
