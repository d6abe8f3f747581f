"""Texts that are made of pieces, one text per row. Pure.

C writes them straight into records; Python makes them where a few are looked at.

A text is a tuple of pieces. Each is a literal, or a column's value in one of these forms; a null is `null`:

    raw      binary or string, as it is (UTF-8)
    string   as a JSON string; bytes that are not UTF-8 as {"base64": "…"}
    base64   binary, as a JSON string of base64
    number   an integer

A piece may be bound to a boolean column; rows in which that is not `holds` are without the piece. So one tuple
describes the texts of any rows with its columns, whichever of them are filtered out or added on the way.

    (TextPiece('{"key":'), TextPiece(column="key", form=Form.STRING), TextPiece("}"))

`MadeTexts` and `MadeHeaders` are such texts with the rows that they are made of: columns like others, but their
contents exist only once they are asked for. `teacup.kafka.write.native_producer` hands the same pieces to C.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import polars as pl

from teacup.kafka.records.json_fields import decoded
from teacup.kafka.records.limits import Headers

NULL = "null"
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


class Form(IntEnum):
    """How a piece is written; the numbers are those of `tc_form` in text.h."""

    LITERAL = 0
    RAW = 1
    STRING = 2
    BASE64 = 3
    NUMBER = 4


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of a text.

    text           the text of a literal
    column, form   the column of any other piece, and how its values are written
    where, holds   a boolean column: the piece is written where it is `holds`; empty: in each row
    """

    text: str = ""
    column: str = ""
    form: Form = Form.LITERAL
    where: str = ""
    holds: bool = True


Text: TypeAlias = "tuple[TextPiece, ...]"


@dataclass(frozen=True, slots=True)
class TextHeader:
    """A header with a text for its value; where: a boolean column that says which rows have it; empty: all."""

    name: str
    value: Text
    where: str = ""


@dataclass(frozen=True, slots=True)
class ListedHeaders:
    """All headers in a column (list<struct<key, value>>); null: none."""

    column: str


HeaderPlan: TypeAlias = "tuple[TextHeader | ListedHeaders, ...]"


@dataclass(frozen=True, slots=True)
class MadeTexts:
    """A text for each row."""

    text: Text
    rows: pl.DataFrame

    def __len__(self) -> int:
        return len(self.rows)

    def to_series(self) -> pl.Series:
        """Returns the texts as a column."""
        return texts(self.text, self.rows)

    def to_list(self) -> list[str]:
        """Returns the texts."""
        texts: list[str] = self.to_series().to_list()
        return texts


@dataclass(frozen=True, slots=True)
class MadeHeaders:
    """The headers of each row, in the plan's order."""

    plan: HeaderPlan
    rows: pl.DataFrame

    def __len__(self) -> int:
        return len(self.rows)

    def to_list(self) -> list[Headers]:
        """Returns lists of (name, value), a new list for each row."""
        rows: list[Headers] = [[] for _ in range(len(self.rows))]
        for part in self.plan:
            if isinstance(part, ListedHeaders):
                for headers, more in zip(rows, self.rows[part.column].to_list(), strict=True):
                    headers.extend((pair["key"], pair["value"]) for pair in more or ())
            elif part.where:
                at = self.rows[part.where].fill_null(value=False).arg_true()
                for i, value in zip(at.to_list(), texts(part.value, self.rows[at]).to_list(), strict=True):
                    rows[i].append((part.name, value))
            else:
                for headers, value in zip(rows, texts(part.value, self.rows).to_list(), strict=True):
                    headers.append((part.name, value))
        return rows


def texts(text: Text, rows: pl.DataFrame) -> pl.Series:
    """Returns the text of each row (string)."""
    forms = {(piece.column, piece.form) for piece in text if piece.form is not Form.LITERAL}
    frame = rows.with_columns(_written(rows[column], form).alias(_name(column, form)) for column, form in forms)
    pieces = [pl.repeat("", pl.len())]  # literals alone would be one row
    for piece in text:
        literal = piece.form is Form.LITERAL
        value = pl.lit(piece.text) if literal else pl.col(_name(piece.column, piece.form))
        if piece.where:
            where = pl.col(piece.where).fill_null(value=False)
            value = pl.when(where if piece.holds else ~where).then(value)  # null elsewhere, which is left out
        pieces.append(value)
    return frame.select(text=pl.concat_str(pieces, ignore_nulls=True))["text"]


def most_bytes(text: Text, sizes: Mapping[str, Any], *, escaped: int) -> Any:
    """Returns at most how many bytes each text has, if no byte takes more than `escaped` (6 at most).

    sizes   the bytes of each value (numpy), by column (`columns_of`)
    """
    total: Any = 0
    for piece in text:
        match piece.form:
            case Form.LITERAL:
                total = total + len(piece.text.encode())
            case Form.NUMBER:
                total = total + 20
            case Form.RAW:
                total = total + sizes[piece.column] + len(NULL)
            case Form.BASE64 | Form.STRING:
                total = total + escaped * sizes[piece.column] + 20
    return total


def columns_of(text: Text) -> set[str]:
    """Returns the columns that `most_bytes` needs the sizes of."""
    return {piece.column for piece in text if piece.form not in (Form.LITERAL, Form.NUMBER)}


def _name(column: str, form: Form) -> str:
    return f"{column} as {form.name}"


def _written(values: pl.Series, form: Form) -> pl.Series:
    match form:
        case Form.STRING:
            strings = _strings(values)
        case Form.BASE64:
            strings = _surrounded('"', values.bin.encode("base64"), '"')
        case _:
            strings = values.cast(pl.String)
    return strings.fill_null(NULL) if strings.null_count() else strings


def _strings(values: pl.Series) -> pl.Series:
    """Writes values as JSON strings. Usually no text needs escaping, and then they are not checked one by one."""
    try:
        text = values.cast(pl.String)
    except pl.exceptions.PolarsError:
        text = pl.Series(map(decoded, values.to_list()), dtype=pl.String)
    quoted = _escaped(text) if text.str.contains(_NEEDS_ESCAPE).any() else _surrounded('"', text, '"')
    if text.null_count() == values.null_count():
        return quoted
    other = _surrounded('{"base64": "', values.bin.encode("base64"), '"}')
    return quoted.zip_with(text.is_not_null(), other)


def _escaped(text: pl.Series) -> pl.Series:
    written = (None if one is None else json.dumps(one, ensure_ascii=False) for one in text.to_list())
    return pl.Series(written, dtype=pl.String)


def _surrounded(before: str, text: pl.Series, after: str) -> pl.Series:
    return pl.select(pl.concat_str(pl.lit(before), text, pl.lit(after))).to_series()


def listed(headers: Sequence[Headers]) -> pl.Series:
    """Returns headers as a column for `ListedHeaders`."""
    pairs = [
        [{"key": name, "value": value.encode() if isinstance(value, str) else value} for name, value in of_record]
        for of_record in headers
    ]
    return pl.Series(pairs, dtype=pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})))


def position(side: str) -> Text:
    """Returns `partition:offset` of one side of a row, as a text."""
    partition, offset = (TextPiece(column=f"{side}_{name}", form=Form.NUMBER) for name in ("partition", "offset"))
    return partition, TextPiece(":"), offset
