"""`output.select` before anything runs: which expressions can become bytes."""

from __future__ import annotations

import pytest

from deploy.job import Select
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
