"""Which side topic gets a copy of which record (`joins.rows.outgoing`). Pure.

A row that its topic refuses becomes a dead letter about its left record, with headers that say what was refused:

    too_large       teacup.size, in bytes, and teacup.limit
    select_failed   teacup.expression: which of `key`, `value` and `headers`

Rows that cannot be written, and become dead letters. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from deploy.job import Output
from joins.errors import NoDeadLetterTopic
from joins.rows.frames import is_null, rows_where
from joins.rows.outgoing import Outgoing, and_more, copies_of, position_of
from joins.spec import JoinSpec
from teacup.kafka.headers import EXPRESSION, LIMIT, RIGHT, SELECT_FAILED, SIZE, TOO_LARGE
from teacup.kafka.records.limits import Headers, TopicLimits, record_bytes


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
    """Returns the rows on which an expression of the `select` failed (`deploy.output.select`)."""
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


Write = Callable[[str, Outgoing, Callable[[int], str]], None]
"""(topic, copies, a function that names a copy's record)"""


def write_side_topics(spec: JoinSpec, output: Output, rows: pl.DataFrame, write: Write) -> None:
    """Writes rows that are about one record only: each outcome to its topic, if it has one."""
    outcomes = rows["outcome"]
    for outcome, topic in (("dead_letter", output.dead_letter), ("late", output.late), ("unjoined", output.unjoined)):
        if topic is None and outcome != "dead_letter":
            continue
        with_outcome = (outcomes == outcome).to_numpy()
        for side in ("left", "right"):
            about = rows_where(rows, with_outcome & ~is_null(rows[f"{side}_offset"]))
            if not len(about):
                continue
            if topic is not None:
                write_copies(spec, side, topic, about, write)
            else:
                raise NoDeadLetterTopic(
                    f"{_position(spec, side, about, 0)}{and_more(about)} cannot take part "
                    f"({about['reason'][0]}): name a dead-letter topic (`topics.dead_letter`), or fix the producer"
                )


def write_refused(
    spec: JoinSpec, output: Output, rows: pl.DataFrame, refusals: Sequence[Refusal], write: Write
) -> None:
    """Writes dead letters about rows (`records.ROW`) that cannot be written."""
    about = rows[[refusal.index for refusal in refusals]].with_columns(
        outcome=pl.lit("dead_letter"), reason=pl.Series([refusal.reason for refusal in refusals], dtype=pl.String)
    )
    if output.dead_letter is None:
        first, right = refusals[0], _position(spec, "right", about, 0)
        raise NoDeadLetterTopic(
            f"the row about {_position(spec, 'left', about, 0)} and {right or 'no right record'}{and_more(about)} "
            f"cannot be written to topic {output.topic!r} ({first.reason}): {first.why}. Name a dead-letter topic "
            "(`topics.dead_letter`), or remove the cause"
        )
    rights = about.select(pl.format("{}:{}", "right_partition", "right_offset")).to_series().to_list()
    more = [
        [*([(RIGHT, right)] if right is not None else []), *refusal.headers]
        for right, refusal in zip(rights, refusals, strict=True)
    ]
    write_copies(spec, "left", output.dead_letter, about, write, more)


def write_copies(
    spec: JoinSpec, side: str, topic: str, rows: pl.DataFrame, write: Write, more: Sequence[Headers] | None = None
) -> None:
    """Writes the records of one side; more: additional headers of each, after the others."""
    copies = copies_of(spec.side(side).topic, side, rows, more)
    write(topic, copies, lambda i: f"the copy of {_position(spec, side, rows, i)} for topic {topic!r}")


def _position(spec: JoinSpec, side: str, rows: pl.DataFrame, i: int) -> str:
    return position_of(spec.side(side).topic, side, rows, i)
