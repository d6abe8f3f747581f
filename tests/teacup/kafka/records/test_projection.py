"""What is kept of a batch, against one record after the other with the json module."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.errors import ConfigError
from teacup.kafka.records.json_fields import json_fields
from teacup.kafka.records.record import Projection

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\ä,{}', max_size=3)
INNER = st.dictionaries(st.sampled_from(["a", "b", "c d"]), SCALARS, max_size=3)
VALUES = st.lists(SCALARS, max_size=2) | st.dictionaries(
    st.sampled_from(["a", "b", "e"]), SCALARS | INNER | st.lists(INNER, max_size=1), max_size=3
)
PATHS = st.lists(
    st.sampled_from(["$.a", "$.a.a", "$.a.b", "$.b", '$.b."c d"', "$.e", "$.e.a.b"]),
    min_size=1,
    max_size=4,
    unique=True,
)


def reference(paths: list[str], value: Any) -> Any:
    """The kept fields of one value."""
    kept: dict[str, Any] = {}
    for path in sorted(paths, key=lambda path: path.count(".")):
        names, at, into = [name.strip('"') for name in path.split(".")[1:]], value, kept
        for name in names:
            at = at.get(name, ...) if isinstance(at, dict) else ...
        if at is ... or any(above in paths for above in (path.rpartition(".")[0], "$." + names[0]) if above != path):
            continue
        for name in names[:-1]:
            into = into.setdefault(name, {})
        into[names[-1]] = at
    return kept


@given(PATHS, st.lists(VALUES, min_size=1, max_size=4))
def test_a_value_keeps_its_fields_at_their_places(paths: list[str], values: list[Any]) -> None:
    """Nested, null, missing, below one another; nothing else."""
    written = pa.array([json.dumps(value).encode() for value in values], pa.binary())

    found = json_fields(written, None, (), paths).kept

    assert found is not None
    assert [json.loads(text) for text in found.to_pylist()] == [reference(paths, value) for value in values]


def test_what_is_not_json_keeps_nothing() -> None:
    """It becomes a dead letter elsewhere; a null value stays null."""
    found = json_fields(pa.array([b"{torn", None, b"\xff", b'{"a": 1}'], pa.binary()), "$.t", ["$.k"], ["$.a"])

    assert found.kept is not None
    assert found.kept.to_pylist() == [None, None, None, '{"a":1}']


def test_headers_are_kept_by_their_names() -> None:
    """All of a name, in their order; null where none is left."""
    pairs = [[("h", b"1"), ("g", b"2"), ("h", b"3")], [("g", b"2")], None]
    headers = pl.Series(
        "headers",
        [
            None if of_record is None else [{"key": name, "value": value} for name, value in of_record]
            for of_record in pairs
        ],
        dtype=pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})),
    )

    kept = Projection(("header:h", "$")).headers(headers)

    assert kept.to_list() == [[{"key": "h", "value": b"1"}, {"key": "h", "value": b"3"}], None, None]
    assert Projection(("$",)).headers(headers).to_list() == [None] * 3


@pytest.mark.parametrize("part", ["", "price", "$.a[0]", "header:", "$..a"])
def test_what_cannot_be_kept_is_refused(part: str) -> None:
    """Before anything is read."""
    with pytest.raises(ConfigError, match="cannot be kept; give"):
        Projection((part,))
