"""`teacup check --connect --preview`: shows what becomes of the first left records, without writing anything.

The job's own planner and stage run in this process (`joins.driven`), from where a new checkpoint would start, until
enough left records have been joined, nothing more may be read, or time is up. Their window is in a temporary folder.
Nothing is written to the output, no position or batch is kept, and nothing is claimed.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from deploy.jobfile.job import JoinJob
from deploy.output.select import PARTS
from deploy.watch.hour.wait_curve import quantiles
from joins.driven import DrivenJoin
from joins.items import End, Rows
from joins.outcome import RESULTS, Outcome
from joins.plan.reader import JoinControl
from joins.plan.start.copartition import with_path
from joins.plan.wait_reasons import for_people
from joins.spec import JoinSpec
from teacup.base.times import iso, written

LEFTS = 1_000
AT_ONCE = 20_000
"""Records of both sides per batch."""
WITHIN_S = 60.0
EXAMPLES = {Outcome.MATCHED: 3, Outcome.UNMATCHED: 3, Outcome.DEAD_LETTER: 2}
"""The most rows shown of each outcome."""
SHARES = (0.01, 0.5, 0.99)
_WIDEST, _WIDEST_RECORD = 48, 400


@dataclass(slots=True)
class Preview:
    """The results of a preview.

    lefts     number of left records read
    read      number of records read, by side
    rows      number of rows by outcome
    reasons   number of rows by outcome and reason
    late      number of rows about late left records
    apart_ms  right's time minus left's, for matched rows
    appended  whether right's times are those at which the broker appended its records
    examples  rows (`joins.rows.frames.ROW`), by outcome
    ended     why it ended before `LEFTS` left records, for people; empty if it did not
    """

    lefts: int = 0
    read: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    late: int = 0
    apart_ms: list[pl.Series] = field(default_factory=list)
    appended: bool = False
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ended: str = ""

    def add(self, rows: pl.DataFrame) -> None:
        """Counts rows and keeps some as examples."""
        for outcome, reason, count in rows.group_by("outcome", "reason").len().iter_rows():
            self.rows[outcome] += count
            if reason is not None:
                self.reasons[outcome, reason] += count
        results = rows.filter(pl.col("outcome").is_in(RESULTS))
        self.late += int(results["late"].sum())
        matched = rows.filter(pl.col("outcome") == Outcome.MATCHED)
        self.apart_ms.append(matched["right_time"] - matched["left_time"])
        for outcome, most in EXAMPLES.items():
            shown = self.examples.setdefault(outcome, [])
            if len(shown) < most:
                shown += rows.filter(pl.col("outcome") == outcome).head(most - len(shown)).to_dicts()

    @property
    def match_rate(self) -> float | None:
        """The matched rows divided by all rows of left records; None if there are none."""
        results = sum(self.rows[outcome] for outcome in RESULTS)
        return self.rows[Outcome.MATCHED] / results if results else None


def joined(job: JoinJob, lefts: int = LEFTS, within_s: float = WITHIN_S) -> Preview:
    """Joins the first left records of a job. Raises `JoinError`, `KafkaIOError`."""
    preview, until_s = Preview(), time.monotonic() + within_s
    spec = with_path(job.spec)
    spec = replace(spec, max_records=min(spec.max_records or AT_ONCE, AT_ONCE))
    with tempfile.TemporaryDirectory(prefix="teacup-preview-") as folder:
        control = JoinControl(windows=Path(folder), facts=Path(folder), unreachable_for_s=within_s)
        with closing(DrivenJoin(spec, control, Path(folder))) as join:
            _join(join, spec, preview, lefts, until_s)
    return preview


def _join(join: DrivenJoin, spec: JoinSpec, preview: Preview, lefts: int, until_s: float) -> None:
    at: dict[str, Any] = {}
    while preview.lefts < lefts:
        if time.monotonic() > until_s:
            preview.ended = "time is up: right has to be read from far back"
            return
        end = join.next_end(at)
        if end == at:
            held = join.reader.held
            preview.ended = "left is read to its end"
            if held is not None and held.left_waits:
                preview.ended = for_people(spec, held.listed_ms, [*held.waits])
            return
        for item in join.carry_out(at, end):
            if isinstance(item, Rows):
                preview.add(item.frame)
            elif isinstance(item, End):
                preview.lefts += item.summary.lefts_read
                preview.read.update(item.summary.read)
                preview.appended |= item.summary.waits is not None and item.summary.waits.appended
        at = end
        preview.batches += 1


Selected = Callable[[JoinJob, Sequence[dict[str, Any]]], pl.DataFrame]
"""Returns what `output.select` makes of rows, in the same order (`deploy.check.analysis`)."""


def shown(job: JoinJob, preview: Preview, selected: Selected) -> Iterator[str]:
    """Yields the preview as lines of text. Raises `SparkError` if the job has a `select` and Spark does not start."""
    spec = job.spec
    stored = spec.right.source.is_stored
    right = "right is looked up" if stored else f"{preview.read['right']:,} right records"
    batches = "1 batch" if preview.batches == 1 else f"{preview.batches} batches"
    yield ""
    yield (f"preview: {preview.lefts:,} left records, {right}, in {batches} from `start` on; nothing was written")
    if preview.ended:
        yield f"  ended there: {preview.ended}"
    if not preview.lefts:
        return
    rate = "-" if preview.match_rate is None else f"{preview.match_rate:.1%}"
    said = {outcome: f"{outcome} {count:,}{_why(preview, outcome)}" for outcome, count in sorted(preview.rows.items())}
    kind = spec.right.type
    results = [said.pop(outcome) for outcome in kind.results if outcome in said]
    yield f"  match rate {rate}: {', '.join(results)}; late left records {preview.late:,}"
    if left_out := sum(preview.rows[outcome] for outcome in kind.left_out):
        yield f"  of these {left_out:,} are not written: `type: {kind}` leaves {kind.left_out[0]} ones out"
    if said:
        yield f"  beside these rows, of both sides: {', '.join(said.values())}"
    if len(apart := pl.concat(preview.apart_ms)):
        yield from _apart(spec, apart)
        if not stored:
            yield _readable(apart, appended=preview.appended)
    for outcome, rows in preview.examples.items():
        goes = job.output.select is not None and outcome in kind.outcomes and rows
        made = selected(job, rows).to_dicts() if goes else [None] * len(rows)
        for row, record in zip(rows, made, strict=True):
            reason = f" ({row['reason']})" if row["reason"] else ""
            yield f"  {outcome}{reason}, key {_text(row['key'])}"
            yield from _sides(row)
            if record is not None:
                yield f"    select {_record(record)}"


def _record(made: Mapping[str, Any]) -> str:
    """Returns the record that `output.select` makes of a row."""
    if made["failed"] in PARTS:
        return f"a dead letter: `output.select.{made['failed']}` fails on it"
    if made["failed"] is not None:
        return f"a dead letter: a value is not of `{made['failed']}`"
    misfit = f"  (not of {made['misfits']})" if made["misfits"] else ""
    headers = "".join(f", {of['key']}: {_text(of['value'])}" for of in made["out_headers"] or ())
    return f"{_text(made['out_key'])}  {_text(made['out_value'], _WIDEST_RECORD)}{headers}{misfit}"


def _why(preview: Preview, outcome: str) -> str:
    reasons = [f"{reason} {count:,}" for (of, reason), count in sorted(preview.reasons.items()) if of == outcome]
    return f" ({', '.join(reasons)})" if reasons else ""


def _apart(spec: JoinSpec, apart: pl.Series) -> Iterator[str]:
    at = [f"{_signed(int(apart.quantile(share, 'nearest') or 0))} ({share:.0%})" for share in SHARES]
    before, after = written(spec.right.before_ms), written(spec.right.after_ms)
    earliest = f"-{before}" if spec.right.before_ms else "0"
    allows = "any age" if spec.right.of_versions else f"{earliest} to +{after}"
    yield (f"  right's time less left's, of matched rows: {', '.join(at)}; the join allows {allows}")


def _readable(apart: pl.Series, *, appended: bool) -> str:
    """Says how long after left's time right became readable. For old records only the broker's append time tells."""
    if not appended:
        return (
            "  how long after left's time right becomes readable: unknown, as times are the producers'. A job with "
            "`metrics` draws that wait curve while it runs"
        )
    lags = quantiles(apart.to_numpy(), np.ones(len(apart), np.int64))
    shares = [f"{written(ms)} ({100 * float(share):g} %)" for share, ms in lags.items() if ms is not None]
    return f"  right readable after left's time, by share of the matched rows: up to {', '.join(shares)}"


def _signed(ms: int) -> str:
    return f"{'-' if ms < 0 else '+'}{written(abs(ms))}"


def _sides(row: dict[str, Any]) -> Iterator[str]:
    for side in ("left", "right"):
        if row[f"{side}_offset"] is None:
            yield f"    {side:<5}  -"
            continue
        at_ms = row[f"{side}_time"]
        when = "no time" if at_ms is None else iso(at_ms)
        yield (
            f"    {side:<5}  {row[f'{side}_partition']}:{row[f'{side}_offset']}  {when}  {_text(row[f'{side}_value'])}"
        )


def _text(value: bytes | None, widest: int = _WIDEST) -> str:
    """Returns a key or value in readable form, shortened."""
    if value is None:
        return "null"
    try:
        text = value[: 4 * widest].decode()
    except UnicodeDecodeError:
        text = value[:widest].decode(errors="replace")
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= widest else f"{text[: widest - 1]}…"
