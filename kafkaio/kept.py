"""What of a record is kept where records are stored: some fields of its JSON value, some headers. Pure.

    $            the whole value
    $.path       a field of the JSON value, at its place: of `{"a": {"b": 1, "c": 2}}` `$.a.b` keeps `{"a": {"b": 1}}`
    header:NAME  the headers of this name
    kafka        Kafka's key, where the join key is another

A field that a record lacks is missing in what is kept as well. Without `$` and `$.path` the value is null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from kafkaio.errors import ConfigError
from kafkaio.jsonfields import PATH
from kafkaio.recordkey import HEADER, KAFKA

WHOLE = "$"


@dataclass(frozen=True, slots=True)
class KeptOf:
    """Which parts are kept. Raises `ConfigError` for anything else."""

    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            field = PATH.fullmatch(part) and "[" not in part
            if part not in (WHOLE, KAFKA) and not field and not re.fullmatch(f"{HEADER}.+", part, re.DOTALL):
                raise ConfigError(
                    f"{part!r} cannot be kept; give '$' (the whole value), the JSON path of a field outside arrays as "
                    "'$.user.id', 'header:NAME' or 'kafka' (Kafka's key)"
                )

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The fields of the value; None: the value is kept whole."""
        return None if WHOLE in self.parts else tuple(part for part in self.parts if part.startswith("$"))

    @property
    def own_key(self) -> bool:
        """Whether the record's own key is kept, beside the join key."""
        return KAFKA in self.parts

    def headers(self, headers: pl.Series) -> pl.Series:
        """Returns the headers (list of structs with a key) that are kept; null where none is."""
        names = [part.removeprefix(HEADER) for part in self.parts if part.startswith(HEADER)]
        if not names or headers.null_count() == len(headers):
            return pl.Series(headers.name, [None], dtype=headers.dtype).new_from_index(0, len(headers))
        some = headers.list.filter(pl.element().struct.field("key").is_in(names))
        return pl.select(pl.when(some.list.len() > 0).then(some).alias(headers.name)).to_series()

    def values(self, values: pa.Array, fields: pa.Array | None) -> pa.Array:
        """Returns the values that are kept.

        fields   JSON objects of `paths`
        """
        if self.paths is None:
            return values
        return pa.nulls(len(values), values.type) if fields is None else fields.cast(values.type)
