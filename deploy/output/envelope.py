"""The default output: one JSON object per row. Pure.

    {"key": …, "left": {"key": …, "time": …, "value": …, "position": {"topic": …, "partition": …, "offset": …}},
     "right": … or null, "outcome": "matched" | "unmatched", "reason": … or null}

The first key is the join key; those of `left` and `right` are the records' own. A value is embedded according to its
topic's declared format: `json` unchanged (it was checked when read), `avro`
and `protobuf` as JSON (`kafkaio.avrojson`, `kafkaio.protojson`), `text` as a string, `bytes` as base64. A key is a
string; one that is not UTF-8 is {"base64": …}. Times are milliseconds UTC.
"""

from __future__ import annotations

import json

from joins.spec import Format, JoinSpec
from kafkaio.texts import Form, Text, TextPiece

HAS_RIGHT = "has_right"
"""A boolean column beside those of `joins.rows.records.ROW`: whether the row has a right record."""

_FORMS = {
    Format.JSON: Form.RAW,
    Format.AVRO: Form.RAW,
    Format.PROTOBUF: Form.RAW,
    Format.TEXT: Form.STRING,
    Format.BYTES: Form.BASE64,
}


def envelope(spec: JoinSpec) -> Text:
    """Returns the envelope of a row (`joins.rows.records.ROW` and `HAS_RIGHT`) about a left record."""
    right = (TextPiece(piece.text, piece.column, piece.form, where=HAS_RIGHT) for piece in _side(spec, "right"))
    return (
        TextPiece('{"key":'),
        TextPiece(column="key", form=Form.STRING),
        TextPiece(',"left":'),
        *_side(spec, "left"),
        TextPiece(',"right":'),
        *right,
        TextPiece("null", where=HAS_RIGHT, holds=False),
        TextPiece(',"outcome":'),
        TextPiece(column="outcome", form=Form.STRING),
        TextPiece(',"reason":'),
        TextPiece(column="reason", form=Form.STRING),
        TextPiece("}"),
    )


def _side(spec: JoinSpec, side: str) -> Text:
    about = spec.side(side)
    return (
        TextPiece('{"key":'),
        TextPiece(column="key" if about.key_of.is_kafkas else f"{side}_key", form=Form.STRING),
        TextPiece(',"time":'),
        TextPiece(column=f"{side}_time", form=Form.NUMBER),
        TextPiece(',"value":'),
        TextPiece(column=f"{side}_value", form=_FORMS[about.format]),
        TextPiece(f',"position":{{"topic":{json.dumps(about.topic)},"partition":'),
        TextPiece(column=f"{side}_partition", form=Form.NUMBER),
        TextPiece(',"offset":'),
        TextPiece(column=f"{side}_offset", form=Form.NUMBER),
        TextPiece("}}"),
    )
