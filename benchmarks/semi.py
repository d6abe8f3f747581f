"""What a semi join saves where right's values are large: `type: semi` and `type: left` on the same topics, in turns.

    python -m benchmarks.semi [--scale 0.1] [--rounds 3] [--right-bytes 2000]

To Kafka, as by `teacup run`. Left values have 150 bytes.

window  bytes per right record, at the window's largest; promised for `semi`: at most 80, however large right's values
rate    the median of the rounds; promised: that of `semi` is at least 1.2 times that of `left`
"""

from __future__ import annotations

import argparse
from statistics import median

from benchmarks.commandline import broker_and_folder, machine, promise_line
from benchmarks.window_join import Bench, Result
from benchmarks.workload import Shape, make
from joins.spec import JoinType


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.semi", description="A semi join of large values.")
    parser.add_argument("--scale", type=float, default=0.1, help="0.1 is 400,000 left and 320,000 right records")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--right-bytes", type=int, default=2_000, help="of each right value")
    asked = parser.parse_args()
    print(machine())
    found: dict[JoinType, list[Result]] = {JoinType.LEFT: [], JoinType.SEMI: []}
    with broker_and_folder() as (broker, folder):
        bench = Bench(make(broker.bootstrap, asked.scale, shape=Shape(right_bytes=asked.right_bytes)), folder)
        for number in range(asked.rounds):
            for kind, results in found.items():
                results.append(bench.ours(f"{kind}-{number}", "kafka", "json", kind=kind))
                print(
                    f"{kind}: {results[-1].speed.records_per_s:,.0f}/s, CPU {results[-1].cpu_us:.1f} us per record, "
                    f"window {_bytes(results[-1]):,.0f} bytes per record, counts are right"
                )
    left, semi = (median(result.speed.records_per_s for result in results) for results in found.values())
    kept = max(map(_bytes, found[JoinType.SEMI]))
    print(promise_line(kept <= 80, f"window of `semi`: {kept:.0f} bytes per record, at most 80"))
    print(promise_line(semi >= 1.2 * left, f"rate of `semi` over `left`: {semi / left:.2f}, at least 1.2"))


def _bytes(result: Result) -> float:
    window = result.details["window"]
    return float(window["bytes"] / max(window["records"], 1))


if __name__ == "__main__":
    _main()
