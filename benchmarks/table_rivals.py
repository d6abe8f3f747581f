"""A table that changes in Kafka Streams and Flink: which rows differ from brute force, and why?

    python -m benchmarks.table_rivals [--only teacup,streams,flink,flink-view,flink-idle]

All systems read the same two topics (one partition, record timestamps), at the same time, exactly once. A few hundred
left records wait when they start, the others come live, in a few minutes, with event times of the clock. Then each
system starts again with no state, and reads everything a second time (the replay). A row is right if it has the newest
version at or before left's time, of all that were ever written, or none if that is a delete.

teacup      the lookup join with `{before: unlimited, policy: last}`, LMDB, the feeder, and the collector once a second
streams     Kafka Streams: leftJoin with a versioned store (KIP-914) and a grace period (KIP-923)
flink       Flink SQL: LEFT JOIN ... FOR SYSTEM_TIME AS OF left's time, over an upsert-kafka table
flink-view  the same over a versioned view (deduplication), in which a delete is a version that is null
flink-idle  as flink, with `table.exec.source.idle-timeout`

Everybody is promised the same: records are at most 10 s late (`disorder` and `producer_delay`, the grace period, the
watermarks), and left lies at most an hour behind (`retention`, the history retention; Flink has no such setting).
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.commandline import broker_and_folder, chosen, machine
from benchmarks.measure import child_environment
from benchmarks.rivals import HERE, STREAMS, java_command
from benchmarks.workload import LOG_APPEND_TIME, create_topic, read_topic
from deploy.broker.broker import Broker
from deploy.broker.lifeline import Lifeline
from dev.lookup_parts import DELAY, FEEDER, LOOKUP, STORAGE, LookupParts, LookupPlan
from teacup.base.now import wall_ms
from teacup.kafka.write.writer import TopicWriter

LATE_MS = 10_000
HISTORY_MS = 3_600_000
IDLE_TIMEOUT_MS = 5_000
PAUSE_S = 30
START_WITHIN_S = 240
SYSTEMS = {
    "teacup": "Teacup",
    "streams": "Kafka Streams 4.1",
    "flink": "Flink 2.2, upsert-kafka",
    "flink-view": "Flink, versioned view",
    "flink-idle": f"Flink, upsert-kafka, idle after {IDLE_TIMEOUT_MS // 1000} s",
}
LEFT, RIGHT = "orders", "customers"
COMPACTED = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(HISTORY_MS)}

BEFORE: tuple[tuple[int, str, int | None], ...] = (
    *((10_800, "replaced", 1), (10_800, "unchanged", 1)),
    *((3_000, "versions", 1), (3_000, "deleted", 1), (2_000, "versions", 2), (2_000, "deleted", None)),
    *((2_000, "not yet", 1), (2_000, "tie", 1), (2_000, "tie", 2)),
    *((2_000, key, 1) for key in ("left late", "right late", "delete late", "quiet", "outage", "too late", "last")),
    *((2_000, "filler", 1), (1_995, "order", 2), (2_000, "order", 1), (1_000, "deleted", 2)),
    *((600, "replaced", 2), (100, "left late", 2)),
)
"""What the table has at the start, in offset order: seconds ago, key, number of the version (None: a delete)."""
WAITING = (
    *((2_500, "versions"), (2_500, "deleted"), (2_500, "not yet"), (2_000, "tie"), (1_997, "order")),
    *((1_500, key) for key in ("versions", "deleted", "tie", "order")),
    (500, "deleted"),
)

CASES = {
    "versions": "between two versions, and after both",
    "deleted": "before a delete, after it, and after the next version",
    "not yet": "before the first version",
    "tie": "two versions of one time",
    "order": "two versions in the wrong order, 5 s late",
    "right late": "the version comes 3 s after left, and is 4 s late",
    "delete late": "the delete comes 3 s after left, and is 4 s late",
    "left late": "left comes 8 minutes late, its version was replaced meanwhile",
    "replaced": "left comes 2 h late, its version was replaced meanwhile",
    "unchanged": "left comes 2 h late, the table has not changed",
    "quiet": f"right is quiet for {PAUSE_S} s",
    "outage": f"right's producer is down for {PAUSE_S} s, then writes what it has missed",
    "too late": f"the version comes {PAUSE_S} s late, right goes on",
    "last": "the last record of left, right is quiet as well",
}
"""Per key, which is a case: what happens to its left records."""
WHY = {
    "deleted": "`ChangelogNormalize` in Flink's plan gives a delete the event time of the version that it deletes",
    "order": "the view's deduplication drops a version that is older than the newest",
    "left late": "Flink keeps what its watermark needs; a replay may read all before that moves",
    "replaced": "beyond the hour that was promised; only Teacup's row says so",
    "unchanged": "Teacup goes by left's time alone; the others never drop the newest version",
    "quiet": "Flink's watermark waits for right's next record",
    "outage": "later than promised; Flink's watermark has waited",
    "too late": "later than promised, and rows are final; Kafka Streams reads a replay by time, too",
    "last": "a grace period and watermarks pass with later records only",
}
"""Why rows of a case differ, from the plan, the sources and the documents of the other systems."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a system wrote for a left record; `at_ms` is when the broker appended it."""

    left: str
    version: str | None
    no_longer_stored: bool
    at_ms: int


@dataclass
class Topics:
    """Both topics, and all that was written to them."""

    broker: Broker
    lefts: dict[str, tuple[str, int]] = field(default_factory=dict)
    rights: list[tuple[str, int, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        create_topic(self.broker.bootstrap, LEFT, {"retention.ms": "-1"}, partitions=1)
        create_topic(self.broker.bootstrap, RIGHT, COMPACTED, partitions=1)
        self._writer = TopicWriter({"bootstrap.servers": self.broker.bootstrap})

    def left(self, key: str, time_ms: int) -> str:
        """Writes a left record; returns its name."""
        name = f"{key}.{len(self.lefts)}"
        self.lefts[name] = key, time_ms
        self._write(LEFT, key, f'{{"left":"L:{name}"}}', time_ms)
        return name

    def right(self, key: str, time_ms: int, number: int | None) -> None:
        """Writes a version, or a delete."""
        name = None if number is None else f"{key}.{number}"
        self.rights.append((key, time_ms, name))
        self._write(RIGHT, key, None if name is None else f'{{"right":"R:{name}"}}', time_ms)

    def _write(self, topic: str, key: str, value: str | None, time_ms: int) -> None:
        values = pa.array([value and value.encode()], pa.binary())
        self._writer.write(topic, pa.array([key.encode()]), values, timestamps=[time_ms])
        self._writer.flush()

    def rows(self, topic: str) -> list[Row]:
        """Reads what a system has written until now."""
        rows = []
        for _, batch in read_topic(topic, {"bootstrap.servers": self.broker.bootstrap}):
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            for value, at_ms in zip(batch.column("value").to_pylist(), times, strict=True):
                text = value.decode()
                left, right = re.search(r'"L:([^"]*)', text), re.search(r'"R:([^"]*)', text)
                assert left is not None, text
                rows.append(Row(left[1], right and right[1], "no_longer_stored" in text, at_ms))
        return rows


def plan_of(broker: Broker, joined: str) -> LookupPlan:
    join: dict[str, Any] = {"before": "unlimited", "policy": "last"}
    right = {"topic": RIGHT, "format": "json", "disorder": f"{LATE_MS}ms", "tombstones": "delete"}
    delay = {"producer_delay": f"{LATE_MS}ms"}
    return LookupPlan(
        name=joined,
        kafka={"bootstrap.servers": broker.bootstrap},
        left=LEFT,
        right=RIGHT,
        joined=joined,
        before_ms=0,
        disorder_ms=LATE_MS,
        producer_delay_ms=LATE_MS,
        keep="versions",
        retention_ms=HISTORY_MS,
        feeder={"right": right},
        lookup={"join": join, "right": right, "on_expired": "unmatched", **delay},
    )


@contextmanager
def running(systems: Sequence[str], broker: Broker, folder: Path, run: str) -> Iterator[dict[str, str]]:
    """Starts the systems with no state; yields the output topic of each."""
    outputs = {system: f"{system}-{run}" for system in systems}
    with ExitStack() as stack:
        for system, joined in outputs.items():
            create_topic(broker.bootstrap, joined, LOG_APPEND_TIME, partitions=1)
            (own := folder / joined).mkdir()
            if system == "teacup":
                parts = stack.enter_context(LookupParts(own, plan_of(broker, joined)))
                parts.start(STORAGE, DELAY, FEEDER, LOOKUP)
                stack.enter_context(parts.collecting())
                continue
            program, options = STREAMS / "TableStreams.java", [str(HISTORY_MS), str(LATE_MS)]
            if system != "streams":
                idle_ms = IDLE_TIMEOUT_MS if system == "flink-idle" else 0
                table = "view" if system == "flink-view" else "upsert"
                program, options = HERE / "flink" / "TableFlink.java", [str(LATE_MS // 1000), str(idle_ms), table]
            command = [*java_command(program, own), broker.bootstrap, LEFT, RIGHT, joined, str(own / "state")]
            life = Lifeline([*command, *options], own / "log", child_environment())
            stack.callback(life.end, 10)
        yield outputs


class Script:
    """What happens live."""

    def __init__(self, topics: Topics, outputs: Mapping[str, str]) -> None:
        self.topics, self._outputs, self.quiet_until_ms = topics, outputs, 0

    def play(self) -> None:
        """Plays all of it; the last record of left is written `PAUSE_S` before the end."""
        topics = self.topics
        self._until(topics.left("filler", wall_ms()), START_WITHIN_S)
        now_ms = wall_ms()
        for ago_s, key in ((500, "left late"), (7_200, "replaced"), (7_200, "unchanged")):
            topics.left(key, now_ms - 1_000 * ago_s)
        for key, number in (("right late", 2), ("delete late", None)):
            at_ms = self._left(key)
            self._pass(3)
            topics.right(key, at_ms - 1_000, number)
        self._pass(PAUSE_S)
        self._left("quiet")
        self._pass(PAUSE_S, right=False)
        self.quiet_until_ms = wall_ms()
        self._pass(PAUSE_S)
        at_ms = self._left("outage")
        self._pass(PAUSE_S, right=False)
        topics.right("outage", at_ms - 1_000, 2)
        self._pass(PAUSE_S)
        at_ms = self._left("too late")
        self._pass(PAUSE_S)
        topics.right("too late", at_ms - 1_000, 2)
        self._pass(PAUSE_S // 2)
        self._left("last")
        time.sleep(PAUSE_S)

    def _left(self, key: str) -> int:
        self.topics.left(key, at_ms := wall_ms())
        return at_ms

    def _pass(self, seconds: int, *, right: bool = True) -> None:
        """Lets time pass; both topics, or only left, bring a record of no interest each second."""
        for number in range(seconds):
            time.sleep(1)
            self._left("filler")
            if right:
                self.topics.right("pulse", wall_ms(), number)

    def _until(self, left: str, timeout_s: float) -> None:
        """Lets time pass until each system has the row of this record."""
        deadline_s = time.monotonic() + timeout_s
        while missing := [name for name, topic in self._outputs.items() if not self._has(topic, left)]:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{', '.join(missing)} wrote no row within {timeout_s:.0f} s")
            self._pass(2)

    def _has(self, topic: str, left: str) -> bool:
        return any(row.left == left for row in self.topics.rows(topic))


def true_version(rights: Sequence[tuple[str, int, str | None]], key: str, time_ms: int) -> str | None:
    """Finds by brute force what the key was at a time: the newest version, of one time the later offset."""
    there = [(at_ms, offset) for offset, (of, at_ms, _) in enumerate(rights) if of == key and at_ms <= time_ms]
    return rights[max(there)[1]][2] if there else None


def outcome(expected: str | None, rows: Sequence[Row]) -> str:
    """Says in a few words what became of a left record."""
    if len(rows) != 1:
        return f"{len(rows)} rows" if rows else "no row"
    (row,) = rows
    if row.version == expected:
        return "right"
    if row.version is None:
        return "no match: `no_longer_stored`" if row.no_longer_stored else "no match"
    return "another version"


def of_case(topics: Topics, case: str, rows: Sequence[Row], until_ms: int) -> str:
    """Says what became of all left records of a case by a time."""
    outcomes = Counter(
        outcome(
            true_version(topics.rights, key, time_ms),
            [row for row in rows if row.left == left and row.at_ms < until_ms],
        )
        for left, (key, time_ms) in topics.lefts.items()
        if key == case
    )
    count = outcomes.total()
    if outcomes["right"] < count:
        del outcomes["right"]
    return ", ".join(said if number == count else f"{number} of {count} {said}" for said, number in outcomes.items())


def settled(topics: Topics, outputs: Mapping[str, str]) -> dict[str, list[Row]]:
    """Waits until each system has written, and none has written anything for a while; returns the rows of each."""
    deadline_s, rows = time.monotonic() + START_WITHIN_S, dict[str, list[Row]]()
    while time.monotonic() < deadline_s:
        before, rows = rows, {system: topics.rows(topic) for system, topic in outputs.items()}
        if all(rows.values()) and all(len(now) == len(before.get(system, ())) for system, now in rows.items()):
            break
        time.sleep(PAUSE_S // 2)
    return rows


def table_of(topics: Topics, quiet_until_ms: int, runs: Mapping[str, Mapping[str, list[Row]]]) -> Iterator[str]:
    """Yields the lines of the table, in Markdown."""
    systems = list(runs["live"])
    yield f"| left, and what happens | true version | {' | '.join(SYSTEMS[system] for system in systems)} | why |"
    yield "|---" * (len(systems) + 3) + "|"
    for case, happens in CASES.items():
        cells = []
        for system in systems:
            until_ms = quiet_until_ms if case == "quiet" else wall_ms()
            live = of_case(topics, case, runs["live"][system], until_ms)
            replay = of_case(topics, case, runs["replay"][system], wall_ms())
            cells.append(live if live == replay else f"{live}; replay: {replay}")
        true = [true_version(topics.rights, *asked) for asked in topics.lefts.values() if asked[0] == case]
        numbers = ", ".join("none" if version is None else version.rpartition(".")[2] for version in true)
        yield f"| {happens} | {numbers} | {' | '.join(cells)} | {WHY.get(case, '')} |"


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table_rivals", description="Rows that differ.")
    parser.add_argument("--only", default=",".join(SYSTEMS), help=f"some of {', '.join(SYSTEMS)}")
    parser.add_argument("--keep", type=Path, help="a folder for what all systems leave behind, with their logs")
    asked = parser.parse_args()
    systems = chosen(parser, asked.only, list(SYSTEMS))
    print(machine())
    with broker_and_folder() as (broker, temporary):
        folder = asked.keep or temporary
        topics, begin_ms = Topics(broker), wall_ms()
        for ago_s, key, number in BEFORE:
            topics.right(key, begin_ms - 1_000 * ago_s, number)
        for ago_s, key in WAITING:
            topics.left(key, begin_ms - 1_000 * ago_s)
        runs = {}
        with running(systems, broker, folder, "live") as outputs:
            script = Script(topics, outputs)
            script.play()
            runs["live"] = {system: topics.rows(topic) for system, topic in outputs.items()}
        with running(systems, broker, folder, "replay") as outputs:
            runs["replay"] = settled(topics, outputs)
        for line in table_of(topics, script.quiet_until_ms, runs):
            print(line)


if __name__ == "__main__":
    _main()
