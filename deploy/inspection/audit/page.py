"""An audit as a self-contained page: no script, nothing loaded, so it can be mailed, archived and served. Pure.

First comes what was found, then minute by minute what was checked, then what was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from deploy.inspection.audit.findings import Fault, Findings, Minute
from teacup.base.times import iso

_NAMES = {
    "lefts": "left records",
    "rights": "right records",
    "rows": "rows of the output",
    "copies": "copies in side topics",
    "dead_letter": "dead letters",
}
BARS = 400
"""The most bars; in longer ranges a bar stands for several minutes."""
_MINUTE_MS = 60_000
_WIDTH, _HEIGHT = 960, 160

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6875; --line: #d9dee4; --paper: #ffffff; --card: #f6f8fa;
  --strict: #2f7d5b; --allowed: #d29922; --fault: #c5303a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa5b1; --line: #333b45; --paper: #14181d;
  --card: #1c2229; --strict: #4fb286; --allowed: #e3b341; --fault: #ff6b6b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 64rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; } .soft { color: var(--soft); }
.verdict { border-left: .4rem solid var(--strict); background: var(--card); padding: .75rem 1rem; margin: 1rem 0; }
.verdict.wrong { border-color: var(--fault); }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.numbers div { background: var(--card); padding: .6rem .8rem; } .numbers b { display: block; font-size: 1.25rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left;
  padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; } code { font-size: .85em; }
td { overflow-wrap: break-word; } td.key { overflow-wrap: anywhere; min-width: 6rem; }
@media (max-width: 44rem) { thead { display: none; } tr { display: block; border-bottom: 2px solid var(--line); }
  td { display: flex; gap: .75rem; border: 0; padding: .15rem .6rem; overflow-wrap: anywhere; }
  td:empty { display: none; }
  td::before { content: attr(data-name); color: var(--soft); flex: 0 0 6rem; } }
svg { display: block; width: 100%; height: 10rem; } .strict { fill: var(--strict); } .allowed { fill: var(--allowed); }
.fault { fill: var(--fault); } .axis { stroke: var(--line); }
.ends { display: flex; justify-content: space-between; font-size: .75rem; }
.key i { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
"""


def page(findings: Findings) -> str:
    """Returns the page."""
    return "".join(_parts(findings))


def _parts(findings: Findings) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Audit of {escape(findings.job)}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>Audit of {escape(findings.job)}</h1>"
    yield f'<p class="soft">left records of {iso(findings.from_ms)} to {iso(findings.to_ms)}, read and joined again</p>'
    verdict = "No differences" if findings.clean else "Differences"
    yield f'<div class="verdict{"" if findings.clean else " wrong"}"><b>{verdict}</b>'
    yield f"<p>{escape(findings.summary())}.</p></div>"
    yield from _numbers(findings)
    if findings.faults:
        yield "<h2>What is wrong</h2>"
        yield from _faults(findings)
    if findings.minutes:
        yield "<h2>Minute by minute</h2>"
        if any(minute.start_ms is not None for minute in findings.minutes):
            yield from _chart(findings.minutes, findings.to_ms)
        yield from _minutes(findings.minutes)
    yield "<h2>Read and compared</h2>"
    yield from _table(
        ("what", "records"),
        [
            *((f"{_NAMES.get(what, what)} read", f"{count:,}") for what, count in findings.read.items()),
            *((f"left records: {_NAMES.get(what, what)}", f"{count:,}") for what, count in findings.outcomes.items()),
            *(
                (f"{side} records with a copy in the topic for {_NAMES.get(what, what)}", f"{count:,}")
                for what, of in findings.side.items()
                for side, count in of.items()
            ),
            *(
                (f"corrections written: {reason}", f"{count:,}")
                for reason, count in (findings.corrections or {}).items()
            ),
        ],
    )
    if findings.notes:
        yield "<h2>Not checked, or in part</h2><ul>"
        yield from (f"<li>{escape(note)}</li>" for note in findings.notes)
        yield "</ul>"
    yield "</body></html>\n"


def _numbers(findings: Findings) -> Iterator[str]:
    wrong = sum(findings.counts.values())
    yield '<div class="numbers">'
    for name, value in (
        ("left records checked", f"{findings.checked:,}"),
        ("strictly", f"{findings.strict:,}"),
        ("as allowed", f"{findings.allowed:,}"),
        ("differences", f"{wrong:,}"),
        ("seconds", f"{findings.seconds:.1f}"),
    ):
        yield f"<div><b>{value}</b>{name}</div>"
    yield "</div>"


def _faults(findings: Findings) -> Iterator[str]:
    more = dict(findings.counts)
    for fault in findings.faults:
        more[fault.kind] -= 1
    yield from _table(("kind", "where", "left", "right", "expected", "key", "time", "why"), map(_line, findings.faults))
    rest = ", ".join(f"{count:,} {kind}" for kind, count in more.items() if count > 0)
    if rest:
        yield f'<p class="soft">and {escape(rest)} more</p>'


def _line(fault: Fault) -> tuple[str, ...]:
    where = fault.topic if fault.at is None else f"{fault.topic}-{fault.at[0]} offset {fault.at[1]}"
    spots = ["" if spot is None else f"{spot[0]}:{spot[1]}" for spot in (fault.left, fault.right)]
    expected = ", ".join(f"{p}:{offset}" for p, offset in fault.expected)
    return (
        *(fault.kind, where, *spots, expected, fault.key or ""),
        *("no time" if fault.time_ms is None else iso(fault.time_ms), fault.why),
    )


def _table(names: Sequence[str], lines: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f"<th>{escape(name)}</th>" for name in names)
    yield "</tr></thead><tbody>"
    for line in lines:
        cells = [
            f'<td class="{name.split()[0]}" data-name="{escape(name)}">{escape(one)}</td>'
            for name, one in zip(names, line, strict=True)
        ]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def gathered(minutes: Sequence[Minute]) -> list[tuple[int, int, int, int]]:
    """Returns (start, strict, allowed, faults) of at most `BARS` pieces of equal length that cover all minutes.

    Records without a time are in none of them.
    """
    timed = [(minute.start_ms, minute) for minute in minutes if minute.start_ms is not None]
    first = timed[0][0]
    length = max(-(-(timed[-1][0] - first + _MINUTE_MS) // BARS // _MINUTE_MS), 1) * _MINUTE_MS
    pieces: dict[int, list[int]] = {}
    for start_ms, minute in timed:
        of = pieces.setdefault((start_ms - first) // length, [0, 0, 0])
        of[0] += minute.strict
        of[1] += minute.allowed
        of[2] += sum(minute.faults.values())
    return [(first + at * length, *of) for at, of in sorted(pieces.items())]  # type: ignore[misc]


def _chart(minutes: Sequence[Minute], to_ms: int) -> Iterator[str]:
    pieces = gathered(minutes)
    first, last = pieces[0][0], max(pieces[-1][0] + _MINUTE_MS, to_ms)
    length = min((b[0] - a[0] for a, b in pairwise(pieces)), default=_MINUTE_MS)
    length = min(length, last - first)
    most = max(strict + allowed for _, strict, allowed, _ in pieces) or 1
    width = max(_WIDTH * length / (last - first) - 0.5, 0.8)
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img"'
    yield ' aria-label="left records checked over time">'
    for start, strict, allowed, faults in pieces:
        x = _WIDTH * (start - first) / (last - first)
        y = float(_HEIGHT)
        for count, kind in ((strict, "strict"), (allowed, "allowed")):
            height = (_HEIGHT - 14) * count / most
            y -= height
            if height:
                yield f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        if faults:
            yield (
                f'<rect class="fault" x="{x:.1f}" y="{y - 12:.1f}" width="{max(width, 3):.1f}" height="10">'
                f"<title>{iso(start)}: {faults:,} differences</title></rect>"
            )
    yield f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/></svg>'
    yield f'<p class="soft ends"><span>{iso(first)[:16]}Z</span><span>{iso(last)[:16]}Z</span></p>'
    yield f'<p class="soft key">at most {most:,} left records<i style="background:var(--strict)"></i>strictly'
    yield '<i style="background:var(--allowed)"></i>as allowed<i style="background:var(--fault)"></i>differences</p>'


def _minutes(minutes: Sequence[Minute]) -> Iterator[str]:
    """Yields how many minutes there are and a table of those with faults; records without a time are in no minute."""
    wrong = [minute for minute in minutes if minute.faults]
    timed, of_them = ([one for one in some if one.start_ms is not None] for some in (minutes, wrong))
    yield f'<p class="soft">{len(timed):,} minutes, {len(of_them):,} of them with differences</p>'
    if wrong:
        lines = [
            (
                "no time" if minute.start_ms is None else iso(minute.start_ms)[:16] + "Z",
                *(f"{count:,}" for count in (minute.strict, minute.allowed)),
                ", ".join(f"{count:,} {kind}" for kind, count in minute.faults.items()),
            )
            for minute in wrong[:BARS]
        ]
        yield from _table(("minute", "strictly", "as allowed", "differences"), lines)
