"""Copies of records for side topics: dead letters, late and unjoined records, as they were read. Pure.

Headers say where a record was (`teacup.topic`, `teacup.left` or `teacup.right`) and why it is here (`teacup.outcome`,
`teacup.reason`, `teacup.late`). A row that its topic refuses becomes a dead letter about its left record, with what was
refused:

    too_large       teacup.size, in bytes, and teacup.limit
    select_failed   teacup.expression: which of `key`, `value` and `headers`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import polars as pl

from deploy.jobs.job import Output
from deploy.output.outgoing import Outgoing
from deploy.output.refusals import Refusal
from joins.errors import NoDeadLetterTopic
from joins.rows.records import SIDE_COLUMNS
from joins.spec import JoinSpec
from kafkaio.headers import LATE, LEFT, OUTCOME, REASON, RIGHT, TOPIC
from kafkaio.producible import Headers

_POSITION = {"left": LEFT, "right": RIGHT}

Write = Callable[[str, Outgoing, Callable[[int], str]], None]
"""(topic, copies, a function that names a copy's record)"""


def write_aside(spec: JoinSpec, output: Output, rows: pl.DataFrame, write: Write) -> None:
    """Rows that are about one record only: each outcome to its topic, if one is named."""
    for (outcome,), some in rows.group_by("outcome", maintain_order=True):
        topic = {"dead_letter": output.dead_letter, "late": output.late, "unjoined": output.unjoined}[str(outcome)]
        for side in ("left", "right"):
            about = some.filter(pl.col(f"{side}_offset").is_not_null())
            if not len(about):
                continue
            if topic is not None:
                write_copies(spec, side, topic, about, write)
            elif outcome == "dead_letter":
                raise NoDeadLetterTopic(
                    f"{_name(spec, side, about, 0)}{_more(about)} cannot take part "
                    f"({about['reason'][0]}): name a dead-letter topic (`topics.dead_letter`), or fix the producer"
                )


def write_refused(
    spec: JoinSpec, output: Output, rows: pl.DataFrame, refusals: Sequence[Refusal], write: Write
) -> None:
    """Dead letters about rows (`records.ROW`) that cannot be written."""
    about = rows[[one.index for one in refusals]].with_columns(
        outcome=pl.lit("dead_letter"), reason=pl.Series([one.reason for one in refusals], dtype=pl.String)
    )
    if output.dead_letter is None:
        first, right = refusals[0], _name(spec, "right", about, 0)
        raise NoDeadLetterTopic(
            f"the row about {_name(spec, 'left', about, 0)} and {right or 'no right record'}{_more(about)} cannot be "
            f"written to topic {output.topic!r} ({first.reason}): {first.why}. Name a dead-letter topic "
            "(`topics.dead_letter`), or remove the cause"
        )
    rights = about.select(pl.format("{}:{}", "right_partition", "right_offset")).to_series().to_list()
    more = [
        [*([(RIGHT, right)] if right is not None else []), *one.headers]
        for right, one in zip(rights, refusals, strict=True)
    ]
    write_copies(spec, "left", output.dead_letter, about, write, more)


def _more(rows: pl.DataFrame) -> str:
    """How many more there are after the first."""
    return f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""


def write_copies(
    spec: JoinSpec, side: str, topic: str, rows: pl.DataFrame, write: Write, more: Sequence[Headers] | None = None
) -> None:
    """The records of one side; more: additional headers of each, after the others."""
    columns = {name: rows[f"{side}_{name}"] for name in SIDE_COLUMNS}
    headers = [
        [*first, *then] for first, then in zip(_headers(spec, side, rows), more or [[]] * len(rows), strict=True)
    ]
    copies = Outgoing.of(columns["key"], columns["value"], headers, columns["headers"], columns["time"])
    write(topic, copies, lambda i: f"the copy of {_name(spec, side, rows, i)} for topic {topic!r}")


def _headers(spec: JoinSpec, side: str, rows: pl.DataFrame) -> Iterator[Headers]:
    name = spec.side(side).topic
    columns = (f"{side}_headers", f"{side}_partition", f"{side}_offset", "outcome", "reason", "late")
    for own, partition, offset, outcome, reason, late in zip(
        *(rows[column].to_list() for column in columns), strict=True
    ):
        yield [
            *((one["key"], one["value"]) for one in own or ()),
            (TOPIC, name),
            (_POSITION[side], f"{partition}:{offset}"),
            (OUTCOME, outcome),
            *([(REASON, reason)] if reason else ()),
            *([(LATE, "true")] if late else ()),
        ]


def _name(spec: JoinSpec, side: str, rows: pl.DataFrame, i: int) -> str:
    """The position of a row's record on this side; empty if it has none."""
    topic = spec.side(side).topic
    offset = rows[f"{side}_offset"][i]
    return "" if offset is None else f"{topic}-{rows[f'{side}_partition'][i]} offset {offset}"
