"""Rows that cannot be written, and become dead letters. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from joins.rows.outgoing import Outgoing
from kafkaio.headers import EXPRESSION, LIMIT, SIZE
from kafkaio.producible import Headers, TopicLimits, record_bytes
from kafkaio.reasons import SELECT_FAILED, TOO_LARGE


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that cannot be written.

    index    of the row
    reason   too_large | select_failed
    why      for people
    headers  the same, for the dead letter
    """

    index: int
    reason: str
    why: str
    headers: Headers = field(default_factory=list)


def select_failures(results: pl.DataFrame) -> list[Refusal]:
    """Returns the rows on which an expression of the `select` failed (`deploy.output.selectsql`)."""
    if "failed" not in results.columns or results["failed"].null_count() == len(results):
        return []
    return [
        Refusal(i, SELECT_FAILED, f"`output.select.{name}` fails on it", [(EXPRESSION, name)])
        for i, name in enumerate(results["failed"].to_list())
        if name is not None
    ]


def too_large(out: Outgoing, limits: TopicLimits) -> list[Refusal]:
    """Returns the records that are too large for their topic."""
    found = []
    for i in out.perhaps_too_large(limits):
        record = out.record(i)
        passed = limits.limit_passed(*record)
        if passed is not None:
            size, (name, limit) = record_bytes(*record), passed
            why = f"{size:,} bytes, above the {limit:,} of {name}"
            found.append(Refusal(i, TOO_LARGE, why, [(SIZE, str(size)), (LIMIT, f"{limit} ({name})")]))
    return found


def not_refused(count: int, refusals: list[Refusal]) -> npt.NDArray[np.bool_]:
    """Returns a mask of the other rows, of `count`."""
    others = np.ones(count, np.bool_)
    others[[refusal.index for refusal in refusals]] = False
    return others
