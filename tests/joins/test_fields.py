"""Fields of the values as columns of their own types (`Side.value_schema`)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joins import JoinSpec, Right, Side, SpecError
from joins.fields import judged, with_fields
from joins.items import row_table
from joins.rows.frames import ROW
from teacup.base.times import millis_of
from tests.support.profiles import share

SPEC = JoinSpec(
    name="typed",
    left=Side(topic="left", format="json", value_schema="n INT, big DECIMAL(20,0), s STRING, o STRUCT<x: INT>"),
    right=Right(topic="right", format="json", before="1s", value_schema="price DOUBLE"),
)


def rows(spark: Any, *given: dict[str, Any]) -> Any:
    frame = pl.DataFrame([dict.fromkeys(ROW) | {"outcome": "matched"} | row for row in given], schema=ROW)
    return spark.createDataFrame(row_table(frame))


def test_what_fits_keeps_its_value_and_the_rest_is_null_and_marked(spark: Any) -> None:
    """Text takes any value, DECIMAL a text of digits; what is missing, null, or no value at all is no mismatch."""
    values = {
        '{"n": 1, "big": "9223372036854775807", "s": {"a": 1}, "o": {"x": 2}}': (1, 2**63 - 1, '{"a":1}', (2,), False),
        '{"n": "1", "s": "kept"}': (None, None, "kept", None, True),
        '{"n": 1.0}': (None, None, None, None, True),
        '{"n": 2147483648}': (None, None, None, None, True),
        '{"o": {"x": "y"}, "n": 3}': (3, None, None, (None,), True),
        '{"n": null}': (None, None, None, None, False),
        "{}": (None, None, None, None, False),
        "[1]": (None, None, None, None, True),
        "5": (None, None, None, None, True),
    }

    found = with_fields(rows(spark, *({"left_value": text.encode()} for text in values), {}), SPEC).collect()

    *typed, none = found
    for row, (text, (n, big, s, o, mismatch)) in zip(typed, values.items(), strict=True):
        got = row.left
        assert (got.n, got.s, got.o and tuple(got.o), row.left_mismatch) == (n, s, o, mismatch), text
        assert got.big == (None if big is None else Decimal(big))
        assert (row.right, row.right_mismatch) == (None, False)
    assert (none.left, none.left_mismatch) == (None, False)


KINDS: dict[str, dict[str, str | None]] = {
    "DOUBLE": {"1": "1.0", "1e400": None, "-1e400": None, '"NaN"': None, '"Infinity"': None},
    "FLOAT": {"0.5": "0.5", "1e39": None, "-1e39": None},
    "DECIMAL(9,2)": {'"12.50"': "12.50", "5": "5.00", '"-5"': "-5.00", '"12,50"': None, '"1,234.5"': None},
    "TIMESTAMP": {
        '"2026-11-27T10:00:00+01:00"': "2026-11-27 09:00:00",
        '"2026-11-27 10:00:00.25Z"': "2026-11-27 10:00:00.25",
        '"2026-11-27T10:00+0100"': "2026-11-27 09:00:00",
        '"2026-11-27"': "2026-11-27 00:00:00",
        '"2026-11-27T10:00:00+01"': "2026-11-27 09:00:00",
        '"0001-01-01T00:00:00Z"': "0001-01-01 00:00:00",
        '"9999-12-31T23:59:59.999999Z"': "9999-12-31 23:59:59.999999",
        "1795773600": "2026-11-27 10:00:00",
        "-1": "1969-12-31 23:59:59",
        "-62135596800": "0001-01-01 00:00:00",
        "253402300799": "9999-12-31 23:59:59",
        **dict.fromkeys(("1795773600000", "-1795773600000", "-62135596801", "253402300800", "9999999999999")),
        # microseconds, which become times of 1970 and of 2026 if they are multiplied by a million in 64 bits
        **dict.fromkeys(("1795773600000000", "1789334175149826", "-1789334175149827", "1789334175149826506")),
        **dict.fromkeys(('"10:00"', '"T10:00:00Z"', '"2026"', '"x"', '"0001-01-01T00:00:00+01:00"')),
    },
    "TIMESTAMP_NTZ": {
        '"2026-11-27T10:00:00.123456"': "2026-11-27 10:00:00.123456",
        '"9999-12-31 23:59"': "9999-12-31 23:59:00",
        **dict.fromkeys(('"2026"', '"10:00"', '"2026-11-27T10:00:00Z"', '"+10000-01-01"', '"0000-01-01"', "1")),
    },
    "DATE": {
        '"0001-01-01"': "0001-01-01",
        '"9999-12-31"': "9999-12-31",
        **dict.fromkeys(('"+10000-01-01"', '"0000-01-01"', '"-0001-01-01"')),
        '"2026-11-27"': "2026-11-27",
        **dict.fromkeys(('"20261127"', '"2026"', "20784")),
    },
}
"""By type: values, and the text of what they become; None: they are no value of the type."""


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_taken_for_another_one(spark: Any, kind: str) -> None:
    """Commas, milliseconds as seconds, times of an unknown day, and the names of numbers; inside of others, too."""
    inside = f"STRUCT<`w w`: {kind}, n: INT>"
    schema = f"v {kind}, `o o` {inside}, a ARRAY<{kind}>, m MAP<STRING, {kind}>, s ARRAY<{inside}>"
    spec = replace(SPEC, left=replace(SPEC.left, value_schema=schema))
    values = [
        f'{{"v": {text}, "o o": {{"w w": {text}, "n": 1}}, "a": [null, {text}], "m": {{"k": {text}}}, '
        f'"s": [{{"w w": {text}, "n": 1}}, {{"n": 2}}]}}'
        for text in KINDS[kind]
    ]

    found = with_fields(rows(spark, *({"left_value": value.encode()} for value in values)), spec).selectExpr(
        "cast(left.v as string)", "cast(left.`o o`.`w w` as string)", "cast(left.a[1] as string)",
        "cast(left.m['k'] as string)", "cast(left.s[0].`w w` as string)", "left.`o o`.n", "left_mismatch",
    )  # fmt: skip

    assert [tuple(row) for row in found.collect()] == [
        (*[became] * 5, 1, became is None) for became in KINDS[kind].values()
    ]


def test_digits_of_other_fields_make_no_time_a_mismatch(spark: Any) -> None:
    """Whatever their names and places."""
    schema = (
        "at TIMESTAMP, n BIGINT, s STRING, a ARRAY<STRUCT<at: TIMESTAMP, n: BIGINT, s: STRING>>, m MAP<STRING, DATE>"
    )
    spec = replace(SPEC, left=replace(SPEC.left, value_schema=schema))
    digits = "12345678901234"
    members = f'"at": 5, "n": {digits}, "s": "{digits}", "{digits}": {digits}'
    value = f'{{{members}, "a": [{{{members}}}], "m": {{"{digits}": "2026-11-27"}}}}'

    (row,) = with_fields(rows(spark, {"left_value": value.encode()}), spec).collect()

    assert not row.left_mismatch
    assert (row.left.at, row.left.a[0].at) == (datetime(1970, 1, 1, 0, 0, 5),) * 2
    assert (row.left.n, row.left.a[0].s, row.left.m[digits]) == (int(digits), digits, date(2026, 11, 27))


def test_a_time_without_a_zone_is_of_the_zone_of_its_side(spark: Any) -> None:
    """As the event time is; one with a zone keeps its own."""
    spec = replace(SPEC, left=replace(SPEC.left, time_zone="Europe/Berlin", value_schema="at TIMESTAMP"))
    values = (b'{"at": "2026-11-27T10:00:00"}', b'{"at": "2026-11-27T10:00:00Z"}')

    found = with_fields(rows(spark, *({"left_value": value} for value in values)), spec)

    times = [row.at for row in found.selectExpr("unix_millis(left.at) at").collect()]
    assert times == [millis_of("2026-11-27T10:00+01:00"), millis_of("2026-11-27T10:00Z")]


@settings(max_examples=share(5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False),
            st.text(), st.lists(st.integers(), max_size=2),
            st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
        ),
        min_size=1, max_size=100,
    )
)  # fmt: skip
def test_a_field_is_its_value_or_null_with_a_mark(spark: Any, given: list[Any]) -> None:
    """Of any JSON: an INT is an integer of 32 bits, everything else is null and marked."""
    values = [json.dumps({"n": value, "other": 1}).encode() for value in given]

    found = with_fields(rows(spark, *({"left_value": value} for value in values)), SPEC).collect()

    for value, row in zip(given, found, strict=True):
        fits = type(value) is int and -(2**31) <= value < 2**31
        assert (row.left.n, row.left_mismatch) == (value if fits else None, not fits and value is not None), value


def test_dead_letters_are_not_parsed_and_a_mismatch_is_one_if_its_side_says_so(spark: Any) -> None:
    """What cannot take part has a reason already."""
    spec = replace(SPEC, right=replace(SPEC.right, on_mismatch="dead_letter"))
    given = rows(
        spark,
        {"left_value": b"no json", "outcome": "dead_letter", "reason": "invalid_json"},
        {"left_value": b'{"n": "x"}', "right_value": b'{"price": 1}'},
        {"left_value": b'{"n": 1}', "right_value": b'{"price": "x"}'},
    )

    dead, left, right = judged(with_fields(given, spec), spec).collect()

    assert (dead.outcome, dead.reason, dead.left_mismatch) == ("dead_letter", "invalid_json", False)
    assert (left.outcome, left.reason, left.left_mismatch, left.right.price) == ("matched", None, True, 1.0)
    assert (right.outcome, right.reason, right.right.price) == ("dead_letter", "schema_mismatch", None)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            "n STRIN, m INT",
            "left.schema: 'n STRIN, m INT' is not allowed: Unsupported data type \"STRIN\". (line 1, pos 2)",
        ),
        ("n INT m INT", "Syntax error at or near 'm'. (line 1, pos 6)"),
        ("n INT, N INT", "the field n is there twice"),
        ("STRING", "give fields with their types, as `order_id STRING, amount DOUBLE`"),
        ("n INT NOT NULL", "NOT NULL has no effect"),
        ("n STRUCT<a: INT, A: INT>", "the field a is there twice"),
        ("n ARRAY<TINYINT>", "TINYINT is not supported; give STRING, BOOLEAN, SMALLINT, INT"),
        ("n VARCHAR(3)", "VARCHAR(3) is not supported"),
        ("n MAP<INT, INT>", "MAP<INT,INT> is not supported"),
        ("n DECIMAL(99,0)", "Decimal precision 99 exceeds max precision 38"),
    ],
)
def test_a_wrong_schema_is_refused_with_where_it_is_wrong(spark: Any, schema: str, said: str) -> None:
    """Before any record is read."""
    spec = replace(SPEC, left=replace(SPEC.left, value_schema=schema))

    with pytest.raises(SpecError) as refused:
        with_fields(rows(spark, {}), spec)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_fields_of_right_are_among_those_that_are_kept(spark: Any) -> None:
    """Others would be null in every row."""
    fields = "price STRUCT<amount: INT>, `a note` STRING"
    kept = replace(SPEC.right, keep=("$.price.amount", '$."a note"'), value_schema=fields)
    lacking = replace(kept, value_schema="price STRUCT<amount: INT>, campaign STRING")

    with_fields(rows(spark, {}), replace(SPEC, right=kept))
    with pytest.raises(
        SpecError, match=r"the field campaign is not kept \(`keep`: \$\.price\.amount, \$\.\"a note\"\)"
    ):
        with_fields(rows(spark, {}), replace(SPEC, right=lacking))


def test_a_schema_needs_json_and_a_right_whose_values_are_kept() -> None:
    """The value is otherwise no object, or not there."""
    with pytest.raises(SpecError, match=r"a schema \('n INT'\) needs format 'json', 'avro' or 'protobuf'"):
        Side(topic="t", value_schema="n INT")
    with pytest.raises(SpecError, match=r"on_mismatch of 't': .* give one"):
        Side(topic="t", format="json", on_mismatch="dead_letter")
    with pytest.raises(SpecError, match=r"right\.schema: rows of type 'semi' hold left alone"):
        Right(topic="t", format="json", before="1s", type="semi", value_schema="n INT")
