"""Plans that need look-ups in the log: a plan is a generator that yields an `Ask` and is sent the `Answers`. Pure.

All plans run in lockstep, so that one call to the log serves all their partitions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafkaio.topiclog import TimeAnswer, TimeQuery, TopicLog

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """Look-ups in both topics that can be made at once; each maps a partition to its query."""

    newest: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    estimate: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    find: Mapping[str, Mapping[int, TimeQuery]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to an `Ask`, by topic and partition: newest times, estimated offsets, found offsets."""

    newest: Mapping[str, Mapping[int, int | None]]
    estimate: Mapping[str, Mapping[int, int]]
    find: Mapping[str, Mapping[int, TimeAnswer]]


Asking = Generator[Ask, Answers, T]


def in_lockstep(plans: Mapping[int, Asking[T]], logs: Mapping[str, TopicLog], ceiling_ms: int) -> dict[int, T]:
    """Returns what each plan returns, after rounds of merged look-ups; times above `ceiling_ms` are ignored."""
    done: dict[int, T] = {}
    asks: dict[int, Ask] = {}

    def step(number: int, answers: Answers | None) -> None:
        try:
            asks[number] = plans[number].send(answers) if answers is not None else next(plans[number])
        except StopIteration as stop:
            done[number] = stop.value

    for number in plans:
        step(number, None)
    while asks:
        round_, asks = asks, {}
        answers = _look_up(round_.values(), logs, ceiling_ms)
        for number in round_:
            step(number, answers)
    return dict(sorted(done.items()))


def _look_up(asks: Iterable[Ask], logs: Mapping[str, TopicLog], ceiling_ms: int) -> Answers:
    merged: dict[str, dict[str, dict[int, Any]]] = {
        kind: {"left": {}, "right": {}} for kind in ("newest", "estimate", "find")
    }
    for ask in asks:
        for kind, of_kind in merged.items():
            for side, wanted in getattr(ask, kind).items():
                of_kind[side].update(wanted)
    return Answers(
        newest={s: logs[s].newest(w, ceiling_ms) if w else {} for s, w in merged["newest"].items()},
        estimate={s: logs[s].estimate(w) if w else {} for s, w in merged["estimate"].items()},
        find={s: logs[s].first_at_or_after(w, ceiling_ms) if w else {} for s, w in merged["find"].items()},
    )
