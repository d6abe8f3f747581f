"""Knows which schemas the registry had when a record was read: if its schema came later, it stays a dead letter. Pure.

`Known` says from which offset of a partition on each schema was known. It grows by the schemas of a topic, of which
there are few; those that are named and do not exist, which may be many, are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from joins.errors import DataLoss
from joins.rows.reading import RAW, UNREADABLE
from kafkaio.framed import schema_ids
from kafkaio.reasons import UNKNOWN_SCHEMA

Known = Mapping[int, int]
"""The id of a schema -> the first offset whose record was decoded with it."""


def known_in(batch: pa.RecordBatch) -> dict[int, int]:
    """Returns those of the schemas that a batch of one partition names that the registry has."""
    if RAW not in batch.schema.names:
        return {}
    ids, offsets = schema_ids(batch.column(RAW)), batch.column("offset").to_numpy()
    decoded = (ids >= 0) & ~_is_unknown(batch)
    numbers, first = np.unique(ids[decoded], return_index=True)
    return dict(zip(numbers.tolist(), offsets[decoded][first].tolist(), strict=True))


def as_first_read(batch: pa.RecordBatch, known: Known, where: str) -> pa.RecordBatch:
    """Makes dead letters of the records whose schema was unknown when they were first read.

    where   names the partition in messages. Raises `DataLoss` if the registry has lost a schema
    """
    if RAW not in batch.schema.names:
        return batch
    ids, offsets = schema_ids(batch.column(RAW)), batch.column("offset").to_numpy()
    was_known = np.zeros(len(ids), np.bool_)
    for number, first in known.items():
        was_known |= (ids == number) & (offsets >= first)
    unknown = _is_unknown(batch)
    if (lost := was_known & unknown).any():
        raise DataLoss(
            f"the registry no longer has schema {int(ids[lost][0])}, with which the record at offset "
            f"{int(offsets[lost][0])} of {where} was read before: restore it in the registry"
        )
    later = (ids >= 0) & ~was_known & ~unknown
    if not later.any():
        return batch
    at = batch.schema.get_field_index(UNREADABLE)
    reasons = pl.Series(pl.from_arrow(batch.column(UNREADABLE))).scatter(np.flatnonzero(later), UNKNOWN_SCHEMA)
    return batch.set_column(at, batch.schema.field(at), reasons.to_arrow().cast(batch.schema.field(at).type))


def _is_unknown(batch: pa.RecordBatch) -> np.typing.NDArray[np.bool_]:
    found: np.typing.NDArray[np.bool_] = pc.fill_null(
        pc.equal(batch.column(UNREADABLE), UNKNOWN_SCHEMA), False
    ).to_numpy(zero_copy_only=False)
    return found
