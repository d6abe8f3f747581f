"""What must hold for the rows that a reader of committed records has seen, and for what is left behind. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from teacup.kafka.log.topic_log import Ends
from tests.crash.reader import Seen
from tests.support.provenance import batch_of, left_of, right_of

FILES_A_BUCKET = 18
"""Slices and marks of the two or three chunks that a window of a second can hold, and the facts of three batches, twice
over: a batch that was planned again has other files."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the output, as a reader of committed records sees it; origin: of the generation that has written it."""

    partition: int
    offset: int
    left: str
    right: str | None
    late: bool = False
    origin: str = ""


def rows_of(seen: Iterable[Seen]) -> list[Row]:
    """The rows of an output topic, by their headers."""
    return [
        Row(
            record.partition,
            record.offset,
            left_of(record.headers),
            right_of(record.headers),
            "teacup.late" in record.headers,
            origin_of(record),
        )
        for record in seen
    ]


def origin_of(record: Seen) -> str:
    """Which generation of a job has written it."""
    return (batch_of(record.headers) or "").partition(":")[0]


def wrong_rows(rows: Iterable[Row], expected: Mapping[tuple[str, str | None], int]) -> str | None:
    """Rows that are duplicated or wrong; rows that are missing."""
    found, wanted = Counter((row.left, row.right) for row in rows), Counter(expected)
    if found == wanted:
        return None
    return (
        f"{sum((found - wanted).values())} rows too many {list((found - wanted).items())[:5]}, "
        f"{sum((wanted - found).values())} missing {list((wanted - found).items())[:5]}"
    )


def wrong_order(rows: Iterable[Row]) -> str | None:
    """A left record that a generation wrote after a later one of its partition, in the same partition of the output."""
    newest: dict[tuple[int, str, str], int] = {}
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        partition, _, offset = row.left.partition(":")
        at = (row.partition, partition, row.origin)
        if int(offset) <= newest.get(at, -1):
            return f"left {row.left} came out after offset {newest[at]}, in partition {row.partition}"
        newest[at] = int(offset)
    return None


def other_copies(what: str, wanted: Iterable[str], found: Iterable[str]) -> str | None:
    """There must be one of each: not in one topic without the other, and not twice."""
    have, need = Counter(found), Counter(wanted)
    if have == need:
        return None
    return f"{what}: too many {sorted((have - need).items())[:5]}, missing {sorted((need - have).items())[:5]}"


def wrong_unjoined(found: Sequence[str], may: Set[str], must: Set[str]) -> str | None:
    """Right records that are reported twice, or appear in a row, or are missing though they can no longer match."""
    twice = [position for position, count in Counter(found).items() if count > 1]
    unjoined = set(found)
    if not twice and unjoined <= may and must <= unjoined:
        return None
    return f"unjoined: twice {twice[:5]}, joined {sorted(unjoined - may)[:5]}, missing {sorted(must - unjoined)[:5]}"


def open_transaction(ends: Mapping[int, Ends]) -> str | None:
    """Records that readers of committed records cannot reach."""
    hidden = {p: end for p, end in ends.items() if end.stable != end.high}
    return f"a transaction is open: {hidden}" if hidden else None


def too_many_files(names: Sequence[str], buckets: int) -> str | None:
    """Slices, marks, and temporary files of killed writers: none of them may pile up."""
    if len(names) <= FILES_A_BUCKET * buckets:
        return None
    return f"{len(names)} files are left of a window of one second: {sorted(names)[:5]}"
