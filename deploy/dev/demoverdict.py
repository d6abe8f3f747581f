"""Whether the demo's lookup join kept its promises, judged by its output. Pure.

lost        clicks without a row           wrong   rows whose outcome, or impression, is not that of their key
duplicates  rows beyond one per click      early   rows written before the impressions that they may have needed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

ROWS = pl.Schema(
    {
        "partition": pl.Int64(),
        "offset": pl.Int64(),
        "key": pl.String(),
        "time": pl.Int64(),
        "right_key": pl.String(),
        "outcome": pl.String(),
        "appended_ms": pl.Int64(),
    }
)
"""A row of the output: left's position, key and time, right's key, and when the broker got it."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Counts, and how long left was held: from the start of the pause to the first row that it held.

    usual_ms    from a click to its row, the median of those after the pause
    longest_ms  the same, for the click that waited longest
    """

    clicks: int
    rows: int
    matched: int
    unmatched: int
    duplicates: int
    lost: int
    wrong: int
    early: int
    kept_back: int
    paused_ms: int
    held_ms: int
    usual_ms: int
    longest_ms: int

    @property
    def broken(self) -> list[str]:
        """Returns one line for each broken promise."""
        lines = {
            f"{self.lost:,} of {self.clicks:,} clicks are lost": self.lost,
            f"{self.duplicates:,} rows are duplicates": self.duplicates,
            f"{self.wrong:,} rows are wrong": self.wrong,
            f"{self.early:,} rows were written before their impressions could be stored": self.early,
            "no click was held while right paused": not self.kept_back,
        }
        return [line for line, broken in lines.items() if broken]


def judge(
    rows: pl.DataFrame, clicks: int, nowhere: str, after_ms: int, paused_from_ms: int, resumed_ms: int
) -> DemoResult:
    """Judges all rows of the output (`ROWS`); `clicks` of them are expected, right paused between the two times."""
    known = ~rows["key"].str.starts_with(nowhere)
    matched, unmatched = rows["outcome"] == "matched", rows["outcome"] == "unmatched"
    right = (known & matched & (rows["right_key"] == rows["key"])) | (~known & unmatched)
    kept_back = (rows["time"] + after_ms >= paused_from_ms) & (rows["time"] <= resumed_ms)
    waits = rows["appended_ms"] - rows["time"]
    once = rows.select("partition", "offset").n_unique()
    first: Any = rows["appended_ms"].filter(kept_back).min()
    return DemoResult(
        clicks=clicks,
        rows=len(rows),
        matched=int(matched.sum()),
        unmatched=int(unmatched.sum()),
        duplicates=len(rows) - once,
        lost=clicks - once,
        wrong=len(rows) - int(right.fill_null(False).sum()),
        early=int((kept_back & (rows["appended_ms"] < resumed_ms)).sum()),
        kept_back=int(kept_back.sum()),
        paused_ms=resumed_ms - paused_from_ms,
        held_ms=0 if first is None else int(first) - paused_from_ms,
        usual_ms=_ms(waits.filter(rows["time"] > resumed_ms).median()),
        longest_ms=_ms(waits.max()),
    )


def _ms(value: Any) -> int:
    return 0 if value is None else int(value)
