"""The page of an audit: everything that was found is in it, and nothing comes from elsewhere."""

import re

from deploy.inspection.audit.findings import Fault, Findings, Minute
from deploy.inspection.audit.page import BARS, gathered, page

MINUTE_MS = 60_000


def findings(**more):
    minutes = [Minute(at * MINUTE_MS, 100, at % 3, {"missing": 1} if at == 5 else {}) for at in range(30)]
    return Findings("clicks <join>", 0, 30 * MINUTE_MS, minutes=minutes, strict=3_000, allowed=30, **more)


def test_a_fault_is_shown_with_its_record():
    """What comes from records is escaped."""
    fault = Fault("missing", "out", "it has no row", 5 * MINUTE_MS, None, (1, 42), key='"<script>"')

    text = page(findings(counts={"missing": 3}, faults=[fault], notes=["select & co"]))

    assert "1:42" in text
    assert "it has no row" in text
    assert "&lt;script&gt;" in text
    assert "2 missing more" in text
    assert "select &amp; co" in text
    assert "clicks &lt;join&gt;" in text
    assert "<script" not in text


def test_a_record_without_a_time_has_none():
    """Neither in its fault nor in the minutes, and it is in no bar."""
    fault = Fault("missing", "out", "its copy is missing", None, None, (1, 42))
    minutes = [Minute(5 * MINUTE_MS, 10), Minute(None, 3, 0, {"missing": 1})]

    text = page(Findings("clicks", 0, 10 * MINUTE_MS, counts={"missing": 1}, faults=[fault], minutes=minutes))

    assert "no time" in str(fault)
    assert re.findall(r'data-name="(?:time|minute)">([^<]*)', text) == ["no time", "no time"]
    assert "1 minutes, 0 of them with differences" in text
    assert gathered(minutes) == [(5 * MINUTE_MS, 10, 0, 0)]


def test_it_needs_nothing_else():
    """No script, no address: a content security policy of `default-src 'none'` with inline styles is enough."""
    text = page(findings())

    assert "No differences" in text
    assert not re.search(r"https?://|src=|href=|url\(|@import|<script|\son\w+=", text)


def test_long_ranges_have_bars_of_several_minutes():
    """Nothing is lost, and there are not more bars than fit."""
    minutes = [Minute(at * MINUTE_MS, 2, 1, {"altered": 1} if at == 9_999 else {}) for at in range(10_000)]

    pieces = gathered(minutes)

    assert len(pieces) <= BARS
    assert [sum(column) for column in list(zip(*pieces, strict=True))[1:]] == [20_000, 10_000, 1]
