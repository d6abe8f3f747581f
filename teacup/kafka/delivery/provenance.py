"""Where a row comes from: the records that it is made of, and the batch that wrote it. Pure.

Rows, and copies in side topics, carry it in one header, `teacup`: a text of four parts with a space between them.

    1 0:4711 2:17 3f9a0c5d71be42a8:17

    version   of this format: 1
    left      the position of the left record, `partition:offset`; `-` for none
    right     that of the right record; `-` for none
    batch     the one that wrote it (`BatchTag`), `origin:number`; `-` for a writer whose batches have no names

A header of another form, or of another version, says nothing: it is as if it were missing.

A position identifies a record only within one generation of one job: recreated topics count from 0 again, a backfill
reads the same offsets, two jobs read different topics. Therefore the batch is named too, and in its origin the job and
the generation of its checkpoint; every new checkpoint has a new generation.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from teacup.kafka.headers import PROVENANCE
from teacup.kafka.records.json_fields import text_of
from teacup.kafka.records.record import last_header
from teacup.kafka.write.templates import Text, TextHeader, TextPiece, position

_ORIGIN_DIGITS = 16  # 64 bits: there are few generations to distinguish
_NONE = "-"
_NUMBER = "[0-9]{1,18}"
_POSITION = f"[0-9]{{1,9}}:{_NUMBER}"
_FORM = f"^1 (?:(?<left>{_POSITION})|-) (?:(?<right>{_POSITION})|-) (?:(?<batch>[0-9A-Za-z]+:{_NUMBER})|-)$"


@dataclass(frozen=True, slots=True)
class BatchTag:
    """The batch of a job.

    origin  made from the job's name and the generation of its checkpoint
    number  of the batch, as the job counts
    """

    origin: str
    number: int

    @classmethod
    def of(cls, job: str, generation: str, number: int) -> BatchTag:
        """Returns the tag of batch `number` of a job whose checkpoint has this generation."""
        digest = hashlib.sha256(f"{len(job)}:{job}{generation}".encode()).hexdigest()
        return cls(digest[:_ORIGIN_DIGITS], number)

    @classmethod
    def parse(cls, text: str) -> BatchTag:
        """Reads a tag as `provenance_of` gives it."""
        origin, _, number = text.partition(":")
        return cls(origin, int(number))

    def covers(self, other: BatchTag | None) -> bool:
        """Returns whether the other is this batch, or a later one of the same generation."""
        return other is not None and other.origin == self.origin and other.number >= self.number

    def __str__(self) -> str:
        return f"{self.origin}:{self.number}"


def provenance(batch: BatchTag | None, *, left: str | None = None, right: str | None = None) -> TextHeader:
    """Returns the header of rows with the columns {left,right}_{partition,offset}.

    left, right   the boolean column that says which rows have a record of the side; "": all of them, None: none
    """
    written = _NONE if batch is None else str(batch)
    text = (TextPiece("1 "), *_side("left", left), TextPiece(" "), *_side("right", right), TextPiece(f" {written}"))
    return TextHeader(PROVENANCE, text)


def _side(side: str, where: str | None) -> Text:
    if where is None:
        return (TextPiece(_NONE),)
    if not where:
        return position(side)
    pieces = (TextPiece(piece.text, piece.column, piece.form, where) for piece in position(side))
    return *pieces, TextPiece(_NONE, where=where, holds=False)


def provenance_of(headers: pa.Array) -> pl.DataFrame:
    """Returns what the header of each record says: `left`, `right` and `batch`, as texts; null if it says nothing."""
    texts = pl.Series(text_of(last_header(headers, PROVENANCE)))
    return texts.str.extract_groups(_FORM).struct.unnest()


def positions_in(texts: pl.Series) -> pl.DataFrame:
    """Returns the `partition` and the `offset` of positions as texts; null where there is none."""
    parts = texts.str.splitn(":", 2).struct.unnest()
    partition, offset = (part.cast(pl.Int64) for part in parts.get_columns())
    return pl.DataFrame({"partition": partition, "offset": offset})


def tags_in(texts: pl.Series) -> pl.DataFrame:
    """Returns the `origin` and the `number` of batches as texts; null where there is none."""
    encoded = texts.to_arrow().dictionary_encode()
    tags = [BatchTag.parse(text) for text in encoded.dictionary.to_pylist()]
    columns = {
        "origin": pl.Series([tag.origin for tag in tags], dtype=pl.String),
        "number": pl.Series([tag.number for tag in tags], dtype=pl.Int64),
    }
    return pl.DataFrame(columns)[pl.Series(encoded.indices.cast(pa.uint32()))]
