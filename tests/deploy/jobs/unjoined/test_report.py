"""What `teacup unjoined` prints of a slice."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from deploy.jobs.unjoined.run import SliceReport, gathered
from deploy.watch.lines import Lines
from joins.lookup.unjoined.expired import RightSlice, SliceRange, Verdicts
from joins.lookup.unjoined.verdicts import SliceSummary

ONE = SliceSummary(0, 4, 10, read=10, joined=6, rows={"unjoined": 3}, reasons={"expired": 2, "null_key": 1})


@pytest.fixture
def report() -> SliceReport:
    """Of two right partitions."""
    under_way = RightSlice(3_000, 9_000, {p: SliceRange(0, 10, 4) for p in (0, 1)}, {})
    state = Verdicts("g", "j", {}, 0, {0: 0, 1: 0}, {0: 4, 1: 4}, (), under_way)
    return gathered([replace(ONE, dead={"future_time": 1}), ONE], state, 0.5)


def printed(report: SliceReport, *, as_json: bool = False) -> list[str]:
    out = io.StringIO()
    Lines(as_json=as_json, out=out).batch(report)
    return out.getvalue().splitlines()


def test_the_line_has_the_time_and_names_what_is_rare_only_where_it_happened(report: SliceReport) -> None:
    """One line per slice, over all right partitions."""
    usual = "slice 4  right 20  joined 12  unjoined 6  up to 1970-01-01T00:00:03.000Z"

    (line,) = printed(report)
    (alone,) = printed(replace(report, reasons={"expired": 6}, dead={}))

    assert line.split("Z  ", 1)[1] == f"{usual}  null_key 2  dead letters (future_time) 1"
    assert alone.split("Z  ", 1)[1] == usual


def test_machines_get_all_of_it(report: SliceReport) -> None:
    """Also what is usual."""
    (line,) = printed(report, as_json=True)

    found = json.loads(line)
    assert {name: found[name] for name in found if name not in ("at_ms", "time", "level", "job", "generation")} == {
        "event": "slice",
        "number": 4,
        "seconds": 0.5,
        "expiry_ms": 3_000,
        "read": 20,
        "joined": 12,
        "before_start": 0,
        "unjoined": 6,
        "skipped": 0,
        "reasons": {"expired": 4, "null_key": 2},
        "dead": {"future_time": 1},
        "warnings": [],
    }


def test_a_slice_without_records_is_silent(report: SliceReport) -> None:
    """As a batch without records is."""
    assert printed(replace(report, counts=dict.fromkeys(report.counts, 0), reasons={}, dead={})) == []
