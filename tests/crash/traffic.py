"""What the joins under test read: chunks of records on two partitions, bad ones among them, what must come of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from joins.spec import Format, JoinSpec, Policy, Right, Side
from joins.testing import oracle
from teacup.base.now import wall_ms
from tests.support.sparkjoin import Put, history, produce

PARTITIONS = 2
CHUNK = 40  # left records, and a few right ones fewer
KEYS = 12  # at a time
CHUNKS_OF_KEYS = 4  # then come other keys: a store keeps a bounded number of records per key
START_MS = 1_700_000_000_000
LATE_MS = 60
BAD = b"{no json"  # nor anything else
BEFORE_MS = 900


@dataclass
class Traffic:
    """Both topics of a join, chunk by chunk.

    live   times are those of the clock; else chunk k lies in second k, and ends with a right record in each partition
           that lets all left ones of the chunk through (`idle: hold`: no clock is in it)
    chunk  how many left records a chunk has
    keys   how many there are at a time

    In each chunk and partition one left record cannot be read, and goes to the dead letters; another one is late. Both
    lie among good records, whose rows they must not change.
    """

    kafka: Mapping[str, str]
    topics: Mapping[str, str]
    numbers: random.Random
    live: bool = False
    chunk: int = CHUNK
    keys: int = KEYS
    left: list[Put] = field(default_factory=list)
    right: list[Put] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    settled_right: int = 0  # so many right records lie so far back that they have left the window
    _before: list[int] = field(default_factory=list)

    def feed(self) -> None:
        """One more chunk; its right records are readable before its left ones."""
        base = wall_ms() - 1_000 if self.live else START_MS + 1_000 * len(self._before)
        right, last = self.rights_of(base), [] if self.live else self.last_of(base)
        produce(dict(self.kafka), self.topics["right"], right)
        produce(dict(self.kafka), self.topics["left"], self.lefts_of(base))
        produce(dict(self.kafka), self.topics["right"], last)
        self.note([*right, *last])

    def note(self, right: Iterable[Put]) -> None:
        """These right records were written with the chunk."""
        self.right += right
        self._before.append(len(self.right))
        self.settled_right = self._before[-3] if len(self._before) > 2 else 0

    def rights_of(self, base: int) -> list[Put]:
        """The right records of a chunk that begins at that time, without the last ones."""
        return self._some("right", self.chunk - 8, base, 0, 800)

    def last_of(self, base: int) -> list[Put]:
        """For each partition the right record that lets all left ones of the chunk through."""
        return [Put(p, b"last-%d" % p, base + 999, self.value("right", 0)) for p in range(PARTITIONS)]

    def lefts_of(self, base: int) -> list[Put]:
        """The left records of a chunk, with the bad and the late ones."""
        good = self._some("left", self.chunk, base, 400, 900)
        puts: list[Put] = []
        for p in range(PARTITIONS):
            mine = [put for put in good if put.partition == p]
            at = len(mine) // 2
            known = sum(put.partition == p for put in self.left)
            if at:
                time_ms = mine[at - 1].time_ms
                self.late.add(f"{p}:{known + at + 1}")
                mine[at:at] = [
                    Put(p, b"bad-%d" % p, time_ms, BAD),
                    Put(p, mine[0].key, time_ms - LATE_MS, self.value("left", 0)),
                ]
            self.dead |= {f"{p}:{known + n}" for n, put in enumerate(mine) if put.value in (None, BAD)}
            puts += mine
        self.left += puts
        return puts

    def key(self, number: int) -> bytes:
        """One of the keys of these chunks."""
        return b"key-%d-%d" % (len(self._before) // CHUNKS_OF_KEYS, number)

    def value(self, side: str, number: int) -> bytes | None:
        """A value that its side can read, or takes for a tombstone; number 0: never a tombstone."""
        return b'{"n": %d}' % number

    def _some(self, side: str, count: int, base: int, low: int, high: int) -> list[Put]:
        puts = []
        for n, at in enumerate(sorted(self.numbers.randrange(low, high) for _ in range(count))):
            key = self.numbers.randrange(self.keys)
            puts.append(Put(key % PARTITIONS, self.key(key), base + at, self.value(side, n)))
        return puts

    def expected(self, policy: Policy = Policy.NEAREST, after_ms: int = 0) -> Counter[tuple[str, str | None]]:
        """The rows of the timely records, by the oracle: of a late one only that it has a row is promised."""
        spec = JoinSpec(
            name="oracle",
            left=Side(topic=self.topics["left"], disorder_ms=0, format=Format.JSON),
            right=Right(
                topic=self.topics["right"], disorder_ms=0, before_ms=BEFORE_MS, after_ms=after_ms, policy=policy
            ),
            kafka=self.kafka,
        )
        return expected_rows(self, _joinable(self.right), spec)

    def settled_rights(self) -> set[str]:
        """Positions of right records that can match nothing any more."""
        return _positions(self.right[: self.settled_right])

    def rights(self) -> set[str]:
        return _positions(self.right)


def expected_rows(traffic: Traffic, right: Iterable[Put], spec: JoinSpec) -> Counter[tuple[str, str | None]]:
    """The rows of the timely left records, by the oracle."""
    rows: Counter[tuple[str, str | None]] = Counter()
    rights = _by_key(right)
    for key, lefts in _by_key(traffic.left).items():  # no other key's record has a part in it, and it is quadratic
        found = rights.get(key, {})
        left_at, right_at = _renumbered(lefts), _renumbered(found)
        for result in oracle.join(history(spec, [*lefts.values()], [*found.values()]), spec):
            at = left_at[result.left_partition, result.left_offset]
            rows[at, result.right and right_at[result.right]] += 1
    return Counter({row: count for row, count in rows.items() if row[0] not in traffic.dead | traffic.late})


def _joinable(right: Iterable[Put]) -> list[Put]:
    """The same, at the same positions; no left record has the key of a tombstone."""
    return [replace(put, key=None) if put.value is None else put for put in right]


def _positions(puts: Iterable[Put]) -> set[str]:
    """Where they are; without tombstones, which are in no row and never unjoined."""
    return {position for position, put in by_position(puts).items() if put.value is not None}


def by_position(puts: Iterable[Put]) -> dict[str, Put]:
    """Each by its partition and offset, in a topic that has nothing else."""
    counts: Counter[int] = Counter()
    found = {}
    for put in puts:
        found[f"{put.partition}:{counts[put.partition]}"] = put
        counts[put.partition] += 1
    return found


def _by_key(puts: Iterable[Put]) -> dict[bytes | None, dict[str, Put]]:
    """By key, each by its position."""
    found: dict[bytes | None, dict[str, Put]] = {}
    for position, put in by_position(puts).items():
        found.setdefault(put.key, {})[position] = put
    return found


def _renumbered(puts: Mapping[str, Put]) -> dict[tuple[int, int], str]:
    """Where they are in topics that have nothing else -> their positions."""
    return {
        (put.partition, int(alone.partition(":")[2])): position
        for (position, put), alone in zip(puts.items(), by_position(puts.values()), strict=True)
    }
