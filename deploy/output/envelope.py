"""The default output: one JSON object per row, built for a whole batch at once. Pure.

    {"key": …, "left": {"key": …, "time": …, "value": …, "position": {"topic": …, "partition": …, "offset": …}},
     "right": … or null, "outcome": "matched" | "unmatched", "reason": … or null}

The first key is the join key; those of `left` and `right` are the records' own. A value is embedded according to its
topic's declared format: `json` unchanged (it was checked when read), `avro`
and `protobuf` as JSON (`kafkaio.avrojson`, `kafkaio.protojson`), `text` as a string, `bytes` as base64. A key is a
string; one that is not UTF-8 is {"base64": …}. Times are milliseconds UTC.
"""

from __future__ import annotations

import base64
import json

import polars as pl

from joins.spec import Format, JoinSpec
from kafkaio.duck import connection

NULL = "null"
NEEDS_ESCAPE = r'["\\\x00-\x1f]'


def envelopes(spec: JoinSpec, rows: pl.DataFrame) -> pl.Series:
    """The envelope of each row (`joins.rows.records.ROW`) about a left record, as text."""
    key = _json_of_key(rows["key"])
    parts = {"key": key}
    for side, topic in (("left", spec.left), ("right", spec.right)):
        parts[f"{side}_key"] = key if topic.key_of.is_kafkas else _json_of_key(rows[f"{side}_key"])
        parts[f"{side}_json"] = _json_of_value(rows[f"{side}_value"], topic.format)
    columns = rows.select(
        "left_time",
        "left_partition",
        "left_offset",
        "right_time",
        "right_partition",
        "right_offset",
        "outcome",
        "reason",
    ).with_columns(**parts)
    right = pl.when(pl.col("right_offset").is_null()).then(pl.lit(NULL)).otherwise(_side("right", spec.right.topic))
    reason = pl.when(pl.col("reason").is_null()).then(pl.lit(NULL)).otherwise(pl.format('"{}"', "reason"))
    return columns.select(
        envelope=pl.concat_str(
            pl.lit('{"key":'),
            "key",
            pl.lit(',"left":'),
            _side("left", spec.left.topic),
            pl.lit(',"right":'),
            right,
            pl.lit(',"outcome":"'),
            "outcome",
            pl.lit('","reason":'),
            reason,
            pl.lit("}"),
        )
    )["envelope"]


def _side(side: str, topic: str) -> pl.Expr:
    position = f',"position":{{"topic":{json.dumps(topic)},"partition":'
    return pl.concat_str(
        pl.lit('{"key":'),
        f"{side}_key",
        pl.lit(',"time":'),
        f"{side}_time",
        pl.lit(',"value":'),
        f"{side}_json",
        pl.lit(position),
        f"{side}_partition",
        pl.lit(',"offset":'),
        f"{side}_offset",
        pl.lit("}}"),
        ignore_nulls=True,  # of a missing right side, which is replaced as a whole
    )


def _json_of_value(values: pl.Series, form: Format) -> pl.Series:
    match form:
        case Format.JSON | Format.AVRO | Format.PROTOBUF:
            found = values.cast(pl.String)
        case Format.TEXT:
            found = _quoted(values.cast(pl.String))
        case Format.BYTES:
            found = _surrounded(values.bin.encode("base64"))
    return found.fill_null(NULL) if found.null_count() else found


def _json_of_key(keys: pl.Series) -> pl.Series:
    try:
        found = _quoted(keys.cast(pl.String))
    except pl.exceptions.PolarsError:
        found = pl.Series([_json_of_one_key(key) for key in keys.to_list()], dtype=pl.String)
    return found.fill_null(NULL) if found.null_count() else found


def _json_of_one_key(key: bytes | None) -> str | None:
    if key is None:
        return None
    try:
        return json.dumps(key.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(key).decode()})


def _quoted(text: pl.Series) -> pl.Series:
    """As JSON strings; usually no text needs escaping, and then they are not checked one by one."""
    if not text.str.contains(NEEDS_ESCAPE).any():
        return _surrounded(text)
    quoted = connection().from_arrow(text.to_frame("text").to_arrow()).project("to_json(text)::varchar AS text")
    return pl.Series(pl.from_arrow(quoted.to_arrow_table().column("text")))


def _surrounded(text: pl.Series) -> pl.Series:
    return pl.select(pl.concat_str(pl.lit('"'), text, pl.lit('"'))).to_series()
