"""What a window ten times as long costs: 60 s and 6 s, to Kafka and without a sink, on the same topics, in turns.

    python -m benchmarks.window_length [--scale 1.0] [--rounds 2]

rate    the median of the rounds; promised: the long window keeps 85 % of it
memory  how much more the Python processes hold with the long window (PSS, median of the later half of the run), divided
        by the size of the additional records (keys, values, times, positions as Arrow); promised: at most twice.
        Without a sink that is the window; to Kafka rows in flight are larger too, because more have a right record
"""

from __future__ import annotations

import argparse
from statistics import median

from benchmarks.commandline import broker_and_folder, machine
from benchmarks.window_join import Bench, Result
from benchmarks.workload import BEFORE_MS, LONG_BEFORE_MS, make


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.window_length", description="A window of 60 s and 6 s.")
    parser.add_argument("--scale", type=float, default=1.0, help="at least 0.3: a 60 s window needs 120 s of history")
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    print(machine())
    with broker_and_folder() as (broker, folder):
        bench = Bench(make(broker.bootstrap, asked.scale), folder)
        for sink in ("kafka", "none"):
            _compare(bench, sink, asked.rounds)


def _compare(bench: Bench, sink: str, rounds: int) -> None:
    found: dict[int, list[Result]] = {BEFORE_MS: [], LONG_BEFORE_MS: []}
    for number in range(rounds):
        for before_ms, results in found.items():
            result = bench.ours(f"window-{sink}-{before_ms}-{number}", sink, "json", before_ms)
            results.append(result)
            window = result.details["window"]
            print(
                f"{sink}, {before_ms / 1000:g} s: {result.speed.records_per_s:,.0f}/s, window {window['records']:,} "
                f"records, {window['bytes'] / 1e6:.1f} MB; Python {_python_bytes(result) / 1e6:,.0f} MB PSS"
            )
    short, long = found.values()
    rates = [median(result.speed.records_per_s for result in results) for results in (short, long)]
    memory = [median(map(_python_bytes, results)) for results in (short, long)]
    weight = [median(result.details["window"]["bytes"] for result in results) for results in (short, long)]
    print(f"{sink}: rate with the long window: {rates[1] / rates[0]:.1%} of the short one's (at least 85 %)")
    print(
        f"{sink}: {(memory[1] - memory[0]) / 1e6:.1f} MB more for {(weight[1] - weight[0]) / 1e6:.1f} MB more of "
        f"records: {(memory[1] - memory[0]) / (weight[1] - weight[0]):.2f} times (at most 2)"
    )


def _python_bytes(result: Result) -> int:
    return sum(size for name, size in result.footprint.settled_by_name.items() if name != "java")


if __name__ == "__main__":
    _main()
