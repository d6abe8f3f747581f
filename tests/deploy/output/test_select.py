"""`output.select` before anything runs: which expressions can become bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.jobfile.job import Select
from deploy.output.select import with_selected
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
