"""`output.select` before anything runs: which expressions can become bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from deploy.jobfile.job import Select
from deploy.output.select import SelectRefused, with_selected
from teacup.spark.errors import SessionRefused

SCHEMA = "key binary, left_value binary, outcome string, right_time bigint, n int"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"key": "n + 1"}, ("output.select.key", "n + 1", "int")),
        ({"value": "right_time"}, ("output.select.value", "right_time", "bigint")),
        ({"value": "struct(n)"}, ("output.select.value", "struct")),
        ({"headers": {"n": "n"}}, ("output.select.headers.n", "int", "cast(n as string)")),
    ],
)
def test_what_is_neither_a_string_nor_binary_is_refused(spark, change, named):
    """With its key, its type, and what to write instead."""
    frame = spark.createDataFrame([], SCHEMA)

    with pytest.raises(SessionRefused) as refused:
        with_selected(frame, Select(**{"key": "key", "value": "left_value", **change}), {})

    assert all(name in str(refused.value) for name in named)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"key": "left_valu"},
            "output.select.key: 'left_valu' is not allowed: there is no column left_valu; did you mean left_value?",
        ),
        ({"value": "to_jsn(n)"}, "there is no function to_jsn; did you mean to_json?"),
        ({"value": "cast(one.pric as string)"}, "there is no field pric; did you mean price?"),
        ({"value": "cast(pric as string)"}, "there is no column pric; did you mean one.price?"),
        ({"value": "left_value + n"}, 'incompatible types ("BINARY" and "INT")'),
        ({"value": "cast(n as strin)"}, 'Unsupported data type "STRIN". (line 1, position 11)'),
        ({"headers": {"h": "concat(n"}}, "output.select.headers.h: 'concat(n' is not allowed: Syntax error at or near"),
        ({"value": "explode(array('a'))"}, "output.select: The generator is not supported"),
    ],
)
def test_what_spark_refuses_is_said_in_one_line(spark, change, said):
    """With the expression, the types, and the nearest name that there is; each expression is named at once."""
    frame = spark.createDataFrame([], f"{SCHEMA}, one struct<price: double>")
    select = {"key": "key", "value": "left_value", **change}

    with pytest.raises(SelectRefused) as refused:
        with_selected(frame, Select(**select), {})
    with pytest.raises(SelectRefused) as both:
        with_selected(frame, Select(**{**select, "headers": {"a": "nowhere", "b": "nothing"}}), {})

    (problem,) = refused.value.problems
    assert said in problem
    assert "SQLSTATE" not in problem
    assert "\n" not in problem
    assert [where.partition(": ")[0] for where in both.value.problems[-2:]] == [
        "output.select.headers.a",
        "output.select.headers.b",
    ]


def test_strings_binary_and_null_are_written(spark):
    """A header may be there without a value."""
    frame = spark.createDataFrame([(b"k", b"v", "matched", 1, 2)], SCHEMA)
    select = Select(key="key", value="concat('n', n)", headers={"what": "outcome", "none": "null"})

    (row,) = with_selected(frame, select, {}).collect()

    assert (bytes(row.out_key.v), bytes(row.out_value.v)) == (b"k", b"n2")
    assert [(header.key, header.value and bytes(header.value)) for header in row.out_headers.v] == [
        ("what", b"matched"),
        ("none", None),
    ]


def test_times_are_written_to_the_microsecond(spark):
    """In JSON; also inside of others, and without a zone."""
    at = "timestamp'2026-11-27T10:00:00.123456Z'"
    fields = {"at": at, "all": f"array({at})", "local": "timestamp_ntz'2026-11-27T10:00:00.000001'"}
    frame = spark.createDataFrame([(b"k", b"v", "matched", 1, 2)], SCHEMA)

    (row,) = with_selected(frame, Select(key="key", value=fields), {}).collect()

    written = "2026-11-27T10:00:00.123456Z"
    assert json.loads(row.out_value.v) == {"at": written, "all": [written], "local": "2026-11-27T10:00:00.000001"}


def test_a_trace_is_passed_on_and_linked_as_the_page_for_operators_says(spark):
    """Null where a record has no such header; the expressions are those of the page."""
    page = (Path(__file__).parents[3] / "docs" / "watch.md").read_text(encoding="utf-8")
    headers = dict(re.findall(r'^      (traceparent|link): "(.+)"$', page, re.MULTILINE))
    kind = "array<struct<key:string,value:binary>>"
    schema = f"key binary, left_value binary, outcome string, left_headers {kind}, right_headers {kind}"
    ours, theirs = [("other", b"x"), ("traceparent", b"00-a-b-01")], [("traceparent", b"00-c-d-01")]
    rows = [(b"k", b"v", "matched", ours, theirs), (b"k", b"v", "unmatched", [], None)]

    found = with_selected(
        spark.createDataFrame(rows, schema), Select(key="key", value="left_value", headers=headers), {}
    )

    values = [[header.value and bytes(header.value) for header in row.out_headers.v] for row in found.collect()]
    assert [*headers] == ["traceparent", "link"]
    assert values == [[b"00-a-b-01", b"00-c-d-01"], [None, None]]
