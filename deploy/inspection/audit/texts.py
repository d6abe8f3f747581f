"""What an envelope says, implemented independently from the documents: its JSON strings, values and end. Pure."""

from __future__ import annotations

import base64

import polars as pl

from deploy.inspection.audit.digests import Digests, of_text
from joins.spec import Format

REASONS = ("no_candidate", "null_key", "right_stalled", "no_longer_stored", "deleted")
"""The reasons for an unmatched row, as an envelope gives them."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


def tails() -> dict[str, Digests]:
    """Returns the ends of envelopes: of a matched row under "", of an unmatched one under its reason."""
    by_text = {"": of_text(',"outcome":"matched","reason":null}')}
    for reason in REASONS:
        by_text[reason] = of_text(f',"outcome":"unmatched","reason":"{reason}"}}')
    return by_text


def tails_alone() -> dict[str, Digests]:
    """Returns the ends of envelopes of right records alone, by reason."""
    return {reason: of_text(f',"outcome":"unjoined","reason":"{reason}"}}') for reason in ("expired", "null_key")}


def after_no_left(keys: pl.Series, values: pl.Series) -> pl.Series:
    """Returns what follows in envelopes (binary) after their key and `"left":null,"right":`; null if that is not there.

    keys   of the records (binary)
    """
    heads = [f'{{"key":{key},"left":null,"right":'.encode() for key in json_strings(keys).to_list()]
    pairs = zip(heads, values.to_list(), strict=True)
    rest = [None if value is None or not value.startswith(head) else value[len(head) :] for head, value in pairs]
    return pl.Series(rest, dtype=pl.Binary)


BETWEEN, NO_RIGHT = ',"right":', "null"


def json_string(text: str) -> str:
    """Returns a text as a JSON string, with the short escapes where they exist."""
    escaped = "".join(_ESCAPES.get(one) or (f"\\u00{ord(one):02X}" if one < " " else one) for one in text)
    return f'"{escaped}"'


def json_strings(values: pl.Series) -> pl.Series:
    """Returns keys (binary) as an envelope has them: JSON strings, `null`, or base64 if they are not UTF-8."""
    try:
        text = values.cast(pl.String)
    except pl.exceptions.PolarsError:
        return pl.Series([_one_string(value) for value in values.to_list()], dtype=pl.String)
    if text.str.contains(_NEEDS_ESCAPE).any():
        strings = pl.Series([None if one is None else json_string(one) for one in text.to_list()], dtype=pl.String)
    else:
        strings = pl.select(pl.concat_str(pl.lit('"'), text, pl.lit('"'))).to_series()
    return strings.fill_null("null")


def _one_string(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return json_string(value.decode())
    except UnicodeDecodeError:
        return f'{{"base64": "{base64.b64encode(value).decode()}"}}'


def value_texts(values: pl.Series, form: Format) -> pl.Series:
    """Returns values (binary) as an envelope has them, by the format of their topic."""
    match form:
        case Format.BYTES:
            value_text = pl.select(pl.concat_str(pl.lit('"'), values.bin.encode("base64"), pl.lit('"'))).to_series()
        case Format.TEXT:
            return json_strings(values)
        case _:
            value_text = values.cast(pl.String)
    return value_text.fill_null("null")
