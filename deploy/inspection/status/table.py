"""Many jobs as a table for people, with remarks below that figures cannot express. As JSON, one line per job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deploy.inspection.status.row import Row
from deploy.watch.life.rule import State
from teacup.base.errors import ExitCode
from teacup.base.times import iso, shown_s

SHOWN = 3
"""How many remarks of a job, and how many holders, are shown."""
WIDTH = 160
"""The width in columns where there is no terminal."""

_COLOURS = {State.RUNNING: "green", State.DONE: "green", State.STANDBY: "green"}


def table(rows: Sequence[Row], limit_ms: int | None = None) -> RenderableType:
    """Returns the table and the remarks below it; limit_ms: how far behind a job may be."""
    table_of_jobs = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "state", "last batch", "behind", "lag", "held by"):
        table_of_jobs.add_column(name, overflow="fold")
    for row in rows:
        table_of_jobs.add_row(*_cells(row, limit_ms))
    remarks = [Text(f"{row.name}: {remark}") for row in rows for remark in _few(row)]
    return Group(table_of_jobs, *([Text("")] if remarks else []), *remarks)


def lines(rows: Sequence[Row], limit_ms: int | None = None) -> Iterator[str]:
    """Yields a JSON object for each job."""
    for row in rows:
        yield json.dumps(row.for_machines(limit_ms), sort_keys=True)


def exit_code(rows: Sequence[Row], limit_ms: int | None = None) -> ExitCode:
    """Returns the exit code of the first job that is not well."""
    codes = (row.exit_code(limit_ms) for row in rows)
    return next((code for code in codes if code is not ExitCode.DONE), ExitCode.DONE)


def _cells(row: Row, limit_ms: int | None) -> list[Text]:
    event_time, at_most = row.event_time_lag, "" if row.event_time_lag.exact else "≤ "
    behind = "-" if event_time.behind_ms is None else f"{at_most}{shown_s(event_time.behind_ms / 1000)}"
    late = row.exit_code(limit_ms) is ExitCode.BEHIND
    lag = "-" if row.lag is None else "  ".join(f"{side} {at_most}{count:,}" for side, count in row.lag.items())
    return [
        Text(row.name),
        Text(_state(row), "red" if row.exit_code() is not ExitCode.DONE else _COLOURS.get(row.state, "yellow")),
        Text(_batch(row)),
        Text(behind, "red" if late else ""),
        Text(lag),
        Text(event_time.held_by or "-"),
    ]


def _state(row: Row) -> str:
    life = row.life
    detail = row.lock.holder if row.lock.held else life.code or None
    return str(life.state) if detail is None else f"{life.state} ({detail})"


def _batch(row: Row) -> str:
    if row.batch is None:
        return "-"
    at_ms = row.batch.at_ms
    ago = "" if at_ms is None else f", {shown_s(max(row.looked_ms - at_ms, 0) / 1000)} ago"
    return f"{row.batch.number:,}{ago}"


def _few(row: Row) -> Iterator[str]:
    remarks = list(row.remarks())
    yield from remarks[:SHOWN]
    if len(remarks) > SHOWN:
        yield f"and {len(remarks) - SHOWN} more (--json has all)"


def inspected_at(rows: Sequence[Row]) -> str:
    """Returns when the jobs were inspected, as text."""
    return iso(max((row.looked_ms for row in rows), default=0))
