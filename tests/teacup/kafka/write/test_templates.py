"""Texts of pieces, against Python's own JSON."""

from __future__ import annotations

import base64
import json

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.write.templates import Form, MadeTexts, TextPiece, listed

KEYS = st.lists(st.none() | st.binary(max_size=12) | st.text(max_size=12).map(str.encode), max_size=12)
KEY = (TextPiece(column="key", form=Form.STRING),)


def decoded(key: bytes | None) -> object:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key or b"").decode()}


@given(KEYS)
def test_any_key_is_json(keys: list[bytes | None]) -> None:
    """Whether a neighbour needs escaping, or is not UTF-8, changes nothing."""
    rows = pl.DataFrame({"key": keys}, schema={"key": pl.Binary})

    together = MadeTexts(KEY, rows).to_list()

    assert [json.loads(text) for text in together] == [decoded(key) for key in keys]
    assert together == [MadeTexts(KEY, rows[i : i + 1]).to_list()[0] for i in range(len(keys))]


def test_a_piece_is_left_out_where_its_condition_does_not_hold() -> None:
    """A null does not hold; texts of literals alone are as many as there are rows."""
    rows = pl.DataFrame({"n": [1, None, 3], "right": [True, False, None]})
    text = (
        TextPiece(column="n", form=Form.NUMBER),
        TextPiece(" with", where="right"),
        TextPiece(column="n", form=Form.NUMBER, where="right"),
        TextPiece(" without", where="right", holds=False),
    )

    assert MadeTexts(text, rows).to_list() == ["1 with1", "null without", "3 without"]
    assert MadeTexts((TextPiece("a"), TextPiece("b")), rows).to_list() == ["ab"] * 3
    assert MadeTexts((), rows[:2]).to_list() == ["", ""]
    assert MadeTexts(text, rows[:0]).to_list() == []


def test_listed_headers_are_bytes() -> None:
    """Text in them is UTF-8."""
    assert listed([[("a", "é"), ("b", None)], []]).to_list() == [
        [{"key": "a", "value": "é".encode()}, {"key": "b", "value": None}],
        [],
    ]
