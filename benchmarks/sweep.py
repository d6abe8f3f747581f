"""How the rate depends on one thing at a time, beside Spark's own join on the same work: a table and a plot.

    python -m benchmarks.sweep --axis window|skew|partitions|values|workers [--scale 0.25] [--no-rival] [--plot DIR]

At every point of the axis both join the same backlog (`benchmarks.workload`; 6 s window and 4 partitions but for what
the axis changes) without a sink, one after the other; counts are compared with brute force. The rival keeps its state
in memory. At the first point it runs with each of Spark's formats of join state that work there; the fastest is taken
for all points.

window      6 s to 10 min; the history is 1,600 s long, at a quarter of the usual clicks per second (times the scale)
skew        the part of all clicks that have one and the same key
partitions  of both topics
values      bytes of every value
workers     local[1], local[2]: cores that Spark may use; the broker is beside it

The table is Markdown, on standard output. `--plot` writes `rate-AXIS.svg` into a folder, and needs
`pip install '.[bench]'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.commandline import broker_and_folder, machine
from benchmarks.measure import RunFailed
from benchmarks.window_join import Bench
from benchmarks.workload import BEFORE_MS, LEFT, STANDARD, Shape, make

HISTORY_S = 1_600
STATE_FORMATS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of an axis: how it is called, and what is joined."""

    name: str
    shape: Shape = STANDARD
    before_ms: int = BEFORE_MS
    master: str = "local[2]"


@dataclass(frozen=True, slots=True)
class Measured:
    """Records per second at a point; None: the rival did not run."""

    point: str
    ours: float
    rival: float | None


def _seconds(ms: int) -> str:
    return f"{ms // 1000} s" if ms < 60_000 else f"{ms // 60_000} min"


def _windows(scale: float) -> list[Point]:
    shape = Shape(left_per_s=round(LEFT * scale / HISTORY_S))
    return [Point(_seconds(ms), shape, before_ms=ms) for ms in (6_000, 20_000, 60_000, 180_000, 600_000)]


@dataclass(frozen=True, slots=True)
class Axis:
    """What changes, and its points for a scale."""

    title: str
    points: Callable[[float], list[Point]]


AXES = {
    "window": Axis("window", _windows),
    "skew": Axis("clicks of one key", lambda _: [Point(f"{part:.0%}", Shape(hot=part)) for part in (0, 0.1, 0.3, 0.5)]),
    "partitions": Axis("partitions", lambda _: [Point(str(n), Shape(partitions=n)) for n in (4, 16, 64)]),
    "values": Axis("bytes per value", lambda _: [Point(f"{n:,}", Shape(value_bytes=n)) for n in (50, 150, 500, 2_000)]),
    "workers": Axis("workers", lambda _: [Point(str(n), master=f"local[{n}]") for n in (1, 2)]),
}


def measure(axis: str, scale: float, *, rival: bool) -> Iterator[Measured]:
    """Measures point by point; writes the topics of a shape once."""
    formats: Sequence[int] = STATE_FORMATS if rival else ()
    for shape, group in groupby(AXES[axis].points(scale), key=lambda point: point.shape):
        points = list(group)
        with broker_and_folder() as (broker, folder):
            windows_ms = {point.before_ms for point in points}
            work = make(broker.bootstrap, scale, shape=shape, windows_ms=windows_ms)
            for point in points:
                bench = Bench(work, folder, point.master)
                ours = bench.ours("none-json", "none", "json", point.before_ms).speed.records_per_s
                print(f"{point.name}: ours {ours:,.0f}/s", flush=True)
                rivals = _rival_rates(bench, point, formats)
                if len(formats) > 1:
                    formats = (max(rivals, key=lambda number: rivals[number]),)
                yield Measured(point.name, ours, max(rivals.values(), default=None))


def _rival_rates(bench: Bench, point: Point, formats: Sequence[int]) -> dict[int, float]:
    rates = {}
    for number in formats:
        try:
            rates[number] = bench.rival("memory", 1.0, point.before_ms, number).speed.records_per_s
            print(f"{point.name}: Spark's own, state format {number}: {rates[number]:,.0f}/s", flush=True)
        except RunFailed as failed:
            if len(formats) == 1:
                raise
            reason = next((line for line in str(failed).splitlines() if "Exception" in line), str(failed))
            print(f"Spark's join state format {number}, in memory: {reason}", flush=True)
    return rates


def table(axis: str, found: Sequence[Measured]) -> str:
    lines = [f"| {AXES[axis].title} | ours, records/s | Spark's own join | ratio |", "|---|---|---|---|"]
    for measured in found:
        rival, ratio = (
            ("-", "-")
            if measured.rival is None
            else (f"{measured.rival:,.0f}", f"{measured.ours / measured.rival:.1f}")
        )
        lines.append(f"| {measured.point} | {measured.ours:,.0f} | {rival} | {ratio} |")
    return "\n".join(lines)


def plot(axis: str, found: Sequence[Measured], file: Path) -> None:
    """Draws bars from zero, so that lengths can be compared."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": axis, "font.size": 9})
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 2.8), layout="constrained")
    places = range(len(found))
    axes.bar(
        [at - 0.2 for at in places], [measured.ours / 1000 for measured in found], 0.38, label="Teacup", color="#2a6f97"
    )
    rivals = [(measured.rival or 0) / 1000 for measured in found]
    if any(rivals):
        axes.bar([at + 0.2 for at in places], rivals, 0.38, label="Spark's own join, in memory", color="#c9a227")
    axes.set_xticks(list(places), [measured.point for measured in found])
    axes.set_xlabel(AXES[axis].title)
    axes.set_ylabel("thousand records/s")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(file, metadata={"Date": None})


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description="The rate along one axis.")
    parser.add_argument("--axis", choices=[*AXES], required=True)
    parser.add_argument("--scale", type=float, default=0.25, help="1 is 4,000,000 left and 3,200,000 right records")
    parser.add_argument("--rival", action=argparse.BooleanOptionalAction, default=True, help="with Spark's own join")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="write rate-AXIS.svg there")
    asked = parser.parse_args()
    print(machine())
    found = list(measure(asked.axis, asked.scale, rival=asked.rival))
    print(table(asked.axis, found))
    if asked.plot:
        plot(asked.axis, found, asked.plot / f"rate-{asked.axis}.svg")


if __name__ == "__main__":
    _main()
