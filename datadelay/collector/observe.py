"""Observes one consumer in one topic: the edge around `datadelay.collector.reports`.

The order matters. The clock is read before the ends are listed, as records that arrive later were unreadable then. The
positions are read after the ends: a position may have advanced meanwhile, which only makes the value smaller than
necessary. Records of all partitions are read at once, and only if some are unread: a block from the position on, and
one below it, so that no single record decides.

If no unread record has a time, that is a failure, not a caught-up consumer. Most often the path is wrong, or producers
set no timestamp; going by the clock would tell every reader that all is consumed. (A bad record before good ones
is skipped, and so are records from the future.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from datadelay.collector.reports import Observed, Rules, read_below, unread_span
from datadelay.positions import Positions
from teacup.base.times import LATEST_MS
from teacup.kafka.errors import KafkaIOError, OffsetOutOfRange
from teacup.kafka.log.time_search import Timed, block_size
from teacup.kafka.log.topic_log import TopicLog

V = TypeVar("V")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Observation:
    """A topic at `listed_ms`; the generation is that of the consumer and of the topic.

    store_generation: of the store that the consumer has fed up to these positions, as the consumer reports it
    """

    listed_ms: int
    generation: str
    partitions: tuple[Observed, ...]
    store_generation: str | None = None


def observe(
    log: TopicLog,
    positions: Positions,
    rules: Rules,
    clock_ms: Callable[[], int],
) -> Observation:
    """Looks at every partition and notes failures in it. Raises `KafkaIOError`, `PositionsUnreadable`."""
    topic_id = log.topic_id()
    log.partition_count()
    listed_ms = clock_ms()
    ends = log.ends()
    committed = positions.read(log.topic, sorted(ends))
    seen = {p: Observed(partition=p, ends=ends[p], position=committed.positions[p]) for p in sorted(ends)}

    if any(observed.position is not None and observed.position > observed.ends.high for observed in seen.values()):
        now = log.ends()
        seen = {p: replace(observed, high_now=now[p].high) for p, observed in seen.items()}

    ceiling_ms = listed_ms + rules.max_future_skew_ms
    spans = {
        p: span for p, observed in seen.items() if (span := unread_span(observed.position, observed.ends)) is not None
    }
    block = block_size(rules.outliers)
    unread, troubles = _asked(lambda wanted: log.valid_times(wanted, ceiling_ms, block), spans)
    silent = {p: span for p, span in spans.items() if not unread.get(p) and p not in troubles}
    troubles = {**troubles, **_timeless(log, silent)}
    seen = {
        p: replace(observed, unread_ms=_times(unread.get(p)), trouble=troubles.get(p)) for p, observed in seen.items()
    }

    below = {p: at for p, observed in seen.items() if (at := read_below(observed, rules)) is not None}
    read, troubles = _asked(lambda wanted: log.last_times(wanted, ceiling_ms, block), below)
    seen = {
        p: replace(observed, read_ms=_times(read.get(p)), trouble=observed.trouble or troubles.get(p))
        for p, observed in seen.items()
    }
    generation = f"{committed.generation}, topic {topic_id}"
    return Observation(listed_ms, generation, tuple(seen.values()), committed.store_generation)


def _timeless(log: TopicLog, spans: Mapping[int, tuple[int, int]]) -> Mapping[int, str]:
    """Returns the partitions with readable records in the span, but none with any time, however far ahead."""
    late, late_troubles = _asked(lambda wanted: log.valid_times(wanted, LATEST_MS, 1), spans)
    rest = {p: span for p, span in spans.items() if not late.get(p) and p not in late_troubles}
    there, troubles = _asked(log.readable, rest)
    why = "no record from position {} on has an event time: is `time` right, and do the producers set it?"
    reasons = {p: why.format(span[0]) for p, span in rest.items() if there.get(p)}
    return {**late_troubles, **troubles, **reasons}


def _times(block: list[Timed] | None) -> tuple[int, ...]:
    return tuple(at for _, at in block or ())


def _asked(
    ask: Callable[[Mapping[int, V]], Mapping[int, A]], wanted: Mapping[int, V]
) -> tuple[Mapping[int, A], Mapping[int, str]]:
    """Returns the answers, and why partitions gave none, as one failure must not hide the other answers."""
    troubles: dict[int, str] = {}
    while rest := {p: value for p, value in wanted.items() if p not in troubles}:
        try:
            return ask(rest), troubles
        except OffsetOutOfRange as error:
            if error.partition not in rest:
                raise
            troubles[error.partition] = str(error)
        except KafkaIOError as error:
            troubles |= dict.fromkeys(rest, str(error))
    return {}, troubles
