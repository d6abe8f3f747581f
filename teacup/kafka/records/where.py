"""Which records of a topic are read, by fields and headers: `where: {$.type: [click, view]}`. Pure.

A part is a JSON path into the value, or `header:NAME`. A record fits if each part holds one of its texts. What a part
holds is text as in a join key: a number is its digits, 7 and "7" are equal. A missing part, null, and an object fit
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from teacup.base.fields import property_text
from teacup.kafka.errors import ConfigError
from teacup.kafka.records.json_fields import PATH, text_of
from teacup.kafka.records.record import HEADER, last_header

Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The texts that each part may hold. Raises `ConfigError` for anything else."""

    parts: tuple[tuple[str, Texts], ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("it names nothing; give the JSON path of a field, or 'header:NAME', and its texts")
        for part, texts in self.parts:
            if not PATH.fullmatch(part) and not (part.startswith(HEADER) and part != HEADER):
                raise ConfigError(
                    f"{part!r} is not allowed; give the JSON path of a field as '$.type', or 'header:NAME'"
                )
            if not texts:
                raise ConfigError(f"{part}: it allows nothing; give a text, or a list of texts")

    @classmethod
    def of(cls, given: Mapping[str, str | int | Sequence[str | int]]) -> RecordFilter:
        """Returns what a file says: for each part a text, a whole number, true or false, or a list of these."""
        parts = []
        for part, value in given.items():
            texts = [value] if isinstance(value, str | int) else value
            if not isinstance(texts, list | tuple) or not all(isinstance(text, str | int) for text in texts):
                raise ConfigError(f"{part}: {value!r} is not allowed; give a text, or a list of texts")
            parts.append((part, tuple(property_text(text) for text in texts)))
        return cls(tuple(parts))

    def to_json(self) -> dict[str, list[str]]:
        """Returns the texts of each part; `of` reads it."""
        return {part: list(texts) for part, texts in self.parts}

    def __str__(self) -> str:
        return ", ".join(f"{part}: {' or '.join(texts)}" for part, texts in self.parts)

    @property
    def paths(self) -> tuple[str, ...]:
        """The parts that are JSON paths."""
        return tuple(part for part, _ in self.parts if not part.startswith(HEADER))

    def fits(self, headers: pa.Array, fields: Sequence[pa.Array], readable: pa.Array | None = None) -> pa.Array:
        """Returns which records fit (boolean, without nulls).

        fields    the texts that each value holds at `paths`
        readable  whether the value can be read; if not, it may hold anything. None: all can
        """
        of_value, of_header = iter(fields), pa.repeat(True, len(headers))
        fitting = of_header
        for part, texts in self.parts:
            if part.startswith(HEADER):
                text = text_of(last_header(headers, part.removeprefix(HEADER)))
                of_header = pc.and_(of_header, pc.is_in(text, pa.array(texts, pa.string())))
            else:
                fitting = pc.and_(fitting, pc.is_in(next(of_value), pa.array(texts, pa.string())))
        if readable is not None:
            fitting = pc.or_(fitting, pc.invert(readable))
        return pc.and_(fitting, of_header)
