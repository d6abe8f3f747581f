r"""The join key of records: Kafka's key, a field of the JSON value, a header, or several of these. Pure.

    kafka         Kafka's key, any bytes
    $.path        the text of a field of the JSON value (`kafkaio.jsonfields` says which text a number has)
    header:NAME   the value of a header, any bytes; of several with the same name the last one

A record lacks the key if Kafka's key is null, the field is null or missing, or the header is null or missing. It lacks
a key of several parts if one of them is missing. Several parts become one key as `part|part`, with a backslash before
each `|` and `\` inside a part: two records have equal keys only if all of their parts are equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkaio.errors import ConfigError
from kafkaio.jsonfields import PATH

KAFKA = "kafka"
HEADER = "header:"
MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class KeyOf:
    """Where a record's key is: one part, or several. Raises `ConfigError` for anything else."""

    parts: tuple[str, ...] = (KAFKA,)

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= MOST_PARTS:
            raise ConfigError(f"a key of {len(self.parts)} parts is not allowed; give 1 to {MOST_PARTS}")
        for part in self.parts:
            if part != KAFKA and not PATH.fullmatch(part) and not re.fullmatch(f"{HEADER}.+", part, re.DOTALL):
                raise ConfigError(
                    f"{part!r} is not allowed as a key; give 'kafka', the JSON path of a field as '$.user.id', "
                    "'header:NAME', or a list of these"
                )

    @classmethod
    def of(cls, written: str | Sequence[str]) -> KeyOf:
        """Makes it from what is written in a job file: one part, or a list."""
        return cls((written,) if isinstance(written, str) else tuple(written))

    def __str__(self) -> str:
        """Returns it as in a message: `$.user.id`, or `[kafka, header:tenant]`."""
        return self.parts[0] if len(self.parts) == 1 else f"[{', '.join(self.parts)}]"

    @property
    def is_kafkas(self) -> bool:
        """The record's own key, as it is."""
        return self.parts == (KAFKA,)

    @property
    def paths(self) -> tuple[str, ...]:
        """The parts that are fields of the value."""
        return tuple(part for part in self.parts if part.startswith("$"))

    def keys(self, own: pa.Array, headers: pa.Array, fields: Sequence[pa.Array]) -> pa.Array:
        """Returns the key of each record, as binary; null if it lacks one.

        own, headers   as in the batches of `kafkaio.rangereader`
        fields         the text or bytes of `paths`, in their order
        """
        of_value = iter(fields)

        def column(part: str) -> pa.Array:
            if part == KAFKA:
                return own
            return next(of_value) if part.startswith("$") else last_header(headers, part.removeprefix(HEADER))

        parts = [column(part).cast(pa.binary()) for part in self.parts]
        return parts[0] if len(parts) == 1 else composed(parts)


def composed(parts: Sequence[pa.Array]) -> pa.Array:
    """Makes one key of several binary parts; null where one of them is null."""
    return pc.binary_join_element_wise(*map(_escaped, parts), pa.scalar(b"|"))


def _escaped(part: pa.Array) -> pa.Array:
    return pc.replace_substring(pc.replace_substring(part, "\\", "\\\\"), "|", "\\|")


def last_header(headers: pa.Array, name: str) -> pa.Array:
    """Returns the value of a header in each record (list<struct<key, value>>); null if it is missing.

    Of several headers with the name the last one counts.
    """
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.binary())
    bounds = headers.offsets.to_numpy()
    entries = headers.values.slice(bounds[0], bounds[-1] - bounds[0])
    named = np.flatnonzero(pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    of_record = np.searchsorted(bounds - bounds[0], named, side="right") - 1
    at = np.full(len(headers), -1, np.int64)
    at[of_record] = named
    return entries.field("value").cast(pa.binary()).take(pa.array(at, mask=at < 0))
